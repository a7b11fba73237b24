"""The desired tree of one node: what the facts say, then the driver's own shape, then the agent's traits on the root."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.tree.counted_on_root import count_on_root
from agent.tree.encryption_tree import put_encryption, take_trait_off_root
from agent.tree.host_tree import shape_host
from agent.tree.mdev_tree import put_mdevs
from agent.tree.policy import Policy
from agent.tree.reshape.context import ReshapeContext
from agent.tree.reshape.moving import move_allocations
from agent.tree.root_traits import put_root_traits
from agent.tree.units import put_units
from agent.driver.interface import Allocations
from agent.model.facts import HostFacts
from agent.model.journal import Journal
from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree

Shape = Callable[[ProviderTree, Allocations | None], None]


@dataclass(frozen=True, slots=True)
class DriverReport:
    """What the driver tells about a node: ``facts``, ``capabilities`` as traits, and how it shapes its own part.

    ``shape_all``: the driver shapes the whole tree, in nova's style, and the core adds nothing from the facts.
    """

    facts: HostFacts
    capabilities: Mapping[str, bool]
    shape: Shape | None = None
    shape_all: bool = False


def desired_tree(
    base: ProviderTree, present: ProviderTree, root: ProviderUuid, driver_report: DriverReport, policy: Policy, journal: Journal, agent: str,
    reshape_context: ReshapeContext | None = None, allocations: Allocations | None = None,
) -> ProviderTree:  # fmt: skip
    """``base``, which is left alone, with everything that the node should have. ``allocations`` are edited in place.

    ``reshape_context``: where guests sit; without, no more is known than the facts and the policy say.

    :raises ReshapeNeeded: allocated inventory has to move and ``allocations`` is None.
    :raises ReshapeFailed: the driver cannot move it.
    :raises ConfigError: the operator's policy does not fit the node.
    """
    tree = base.copy()
    if not driver_report.shape_all:
        shape_host(tree, present, root, driver_report.facts, policy)
    if driver_report.shape is not None:
        driver_report.shape(tree, allocations)
        _complete_ratios(tree, policy.configured_ratios)
    if not driver_report.shape_all:
        put_mdevs(tree, present, root, driver_report.facts, policy.mdev)
        put_encryption(tree, present, root, driver_report.facts, policy.encryption)
        if journal.adopted:
            take_trait_off_root(tree, root)
        count_on_root(tree, root, policy.on_root)
        # After the driver's part, because that may have the providers that count the units.
        put_units(tree, present, root, driver_report.facts)
        # Of a tree that is not adopted nothing goes, so that nothing of it moves either.
        if journal.adopted:
            move_allocations(tree, present, root, reshape_context or ReshapeContext(driver_report.facts, policy), allocations)
    put_root_traits(tree, present, root, journal, policy, agent, driver_report.capabilities, driver_report.facts)
    return tree


def _complete_ratios(tree: ProviderTree, ratios: Mapping[str, float]) -> None:
    """Give the driver's records without a ratio the operator's; what he left open too, the merge completes from Placement."""
    for one in list(tree.providers()):
        sparse = [name for name, record in one.inventory.items() if name in ratios and "allocation_ratio" not in record]
        if sparse:
            tree.update_inventory(one.uuid, {**one.inventory, **{name: {**one.inventory[name], "allocation_ratio": ratios[name]} for name in sparse}})
