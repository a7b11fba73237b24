"""Operator's files on the tree of a driver that is shown what they gave, and may leave it there."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.functional.placement.conftest import Host
from tests.support.agent import NAME, ROOT, AgentUnderTest, total
from tests.support.nova_style_driver import NovaStyleDriver
from tests.support.placement import PlacementServer
from tests.support.provider_files import ProviderFiles, by_name, default
from tests.support.settled import Want, node, settled

ROOT_HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
CHILD = f"{NAME}_FPGA"
CHILD_HAS = {"FPGA": total(2)}
LICENCE = total(20, max_unit=2147483647)
ENTRIES = (
    default("CUSTOM_A", CUSTOM_L={"total": 20}),
    by_name(CHILD, "CUSTOM_B", CUSTOM_X={"total": 20}),
)
CONFIGURED = {
    NAME: node({**ROOT_HAS, "CUSTOM_L": LICENCE}, "CUSTOM_A"),
    CHILD: Want({**CHILD_HAS, "CUSTOM_X": LICENCE}, NAME, {"CUSTOM_B", "OWNER_NOVA"}),
}
PLAIN = {NAME: node(ROOT_HAS), CHILD: Want(CHILD_HAS, NAME)}

Update = Callable[[Any, str], None]


def leaves_alone(tree: Any, name: str) -> None:
    """Writes what is missing, and nothing that is there."""
    if not tree.exists(CHILD):
        tree.new_child(CHILD, name)
        tree.update_inventory(CHILD, CHILD_HAS)
    if not tree.has_inventory(name):
        tree.update_inventory(name, ROOT_HAS)


def reads_and_writes_back(tree: Any, name: str) -> None:
    """Takes what is there and puts its own over it."""
    if not tree.exists(CHILD):
        tree.new_child(CHILD, name)
    for provider, own in ((name, ROOT_HAS), (CHILD, CHILD_HAS)):
        found = tree.data(provider)
        tree.update_inventory(provider, {**found.inventory, **own})
        tree.update_traits(provider, found.traits)


def rebuilds(tree: Any, name: str) -> None:
    """Writes all inventories anew."""
    if not tree.exists(CHILD):
        tree.new_child(CHILD, name)
    tree.update_inventory(
        CHILD,
        {
            name: {"total": record["total"], "max_unit": record["max_unit"]}
            for name, record in CHILD_HAS.items()
        },
    )
    tree.update_inventory(name, ROOT_HAS)


class Driver(NovaStyleDriver):
    def __init__(self, update: Update) -> None:
        super().__init__()
        self.update = update

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: Any = None
    ) -> None:
        self.update(provider_tree, nodename)


@pytest.fixture
def files(tmp_path) -> ProviderFiles:
    return ProviderFiles(tmp_path / "provider_config")


@pytest.fixture(params=[leaves_alone, reads_and_writes_back, rebuilds])
def agent(request: pytest.FixtureRequest, host: Host, files: ProviderFiles) -> AgentUnderTest:
    return host(driver=Driver(request.param), provider_files=files.folder)


def test_a_second_run_is_fine_and_sends_nothing(
    agent: AgentUnderTest, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    files.write("a.yaml", *ENTRIES)
    assert agent.once().state == "changed"
    settled(agent, placement, agent_log, CONFIGURED)


def test_what_left_the_files_is_removed(
    agent: AgentUnderTest, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    files.write("a.yaml", *ENTRIES)
    agent.once()
    files.remove("a.yaml")
    assert agent.once().state == "changed"
    settled(agent, placement, agent_log, PLAIN)


def test_what_is_used_is_held_and_goes_when_it_is_free(
    agent: AgentUnderTest, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    files.write("a.yaml", *ENTRIES)
    child = agent.once().tree.provider(CHILD).uuid
    consumer = placement.other.claim({child: {"CUSTOM_X": 4}})
    files.remove("a.yaml")
    for run in (agent.once, agent.once):
        drift, _ = run().drift
        assert (
            drift.detail
            == f"{CHILD}: no file gives it CUSTOM_X any more but 4 of it are allocated to {consumer}"
        )
        assert placement.other.inventory(child) == {
            **CHILD_HAS,
            "CUSTOM_X": {**LICENCE, "reserved": 20},
        }
    placement.other.release(consumer)
    agent.once()
    settled(agent, placement, agent_log, PLAIN)


def test_an_adopted_tree_keeps_what_somebody_else_had_put_on_it(
    agent: AgentUnderTest, files: ProviderFiles, placement: PlacementServer, agent_log
) -> None:
    other = placement.other
    other.create_provider(NAME, ROOT)
    other.set_inventory(ROOT, {**ROOT_HAS, "CUSTOM_THEIRS": total(3)})
    other.set_traits(ROOT, ["CUSTOM_A", "CUSTOM_Z"])
    files.write("a.yaml", *ENTRIES)
    agent.once(adopt=True)
    files.remove("a.yaml")
    agent.once()
    settled(
        agent,
        placement,
        agent_log,
        {
            NAME: node({**ROOT_HAS, "CUSTOM_THEIRS": total(3)}, "CUSTOM_A", "CUSTOM_Z"),
            CHILD: PLAIN[CHILD],
        },
    )
