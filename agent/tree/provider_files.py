"""The last part of the desired tree: what the operator's provider files add.

Files neither create providers nor change their ownership. What a file added before belongs neither
to the driver nor to another owner, whichever tree shows it: it is removed first, and comes back
only if a file still says so.
"""

from agent.model.inventory import differs
from agent.model.journal import Configured
from agent.model.provider import Provider
from agent.model.provider_tree import ProviderTree
from agent.placement.merge_inputs import MergeInputs
from agent.provider_config.applying import Addition, Applied, ConfiguredNode, apply
from agent.provider_config.entry import ProviderConfig


def put_operators_files(
    config: ProviderConfig, inputs: MergeInputs, owner_trait: str, *, kept: bool = False
) -> Applied:
    """Return the desired tree of ``inputs`` with the additions of the operator's files. A provider
    that has an entry also gets ``owner_trait``.

    ``kept``: the facts are not complete, so parts of the desired tree are copies of what Placement
    has, and may contain what files added.
    """
    configured_before = {
        uuid: ownership.configured
        for uuid, ownership in inputs.journal.providers.items()
        if ownership.configured
    }
    if not inputs.desired.exists(inputs.root) or not (config.entries or configured_before):
        return Applied(inputs.desired)
    tree = inputs.desired.copy()
    for uuid, configured in configured_before.items():
        source = inputs.present if kept and inputs.present.exists(uuid) else inputs.base
        if tree.exists(uuid) and source.exists(uuid):
            _take_back(tree, source.provider(uuid), configured)
    members = tree.get_provider_uuids(inputs.root)
    own_classes = {
        uuid: _own_classes(tree.provider(uuid), inputs)
        for uuid in members
        if inputs.is_desired(uuid) and inputs.is_own(uuid)
    }
    gone = frozenset(uuid for uuid in members if not inputs.is_desired(uuid))
    last = {
        uuid: _addition(inputs.present.provider(uuid), configured)
        for uuid, configured in configured_before.items()
        if inputs.present.exists(uuid)
    }
    return apply(config, ConfiguredNode(tree, inputs.root, own_classes, gone, last), owner_trait)


def _take_back(tree: ProviderTree, base: Provider, configured: Configured) -> None:
    """Remove what files added and the desired tree only has because ``base`` has it, unless the
    desired record differs.
    """
    desired = tree.provider(base.uuid)
    left = {
        name
        for name in configured.classes & desired.inventory.keys() & base.inventory.keys()
        if not differs(base.inventory[name], desired.inventory[name])
    }
    if left:
        tree.update_inventory(
            base.uuid,
            {name: record for name, record in desired.inventory.items() if name not in left},
        )
    tree.remove_traits(base.uuid, *(configured.traits & base.traits))


def _own_classes(desired: Provider, inputs: MergeInputs) -> frozenset[str]:
    """Return the classes that the node itself has: set in this pass, or in an earlier one and still
    there.
    """
    base = inputs.base.provider(desired.uuid).inventory if inputs.base.exists(desired.uuid) else {}
    own = inputs.journal.of(desired.uuid).classes
    return frozenset(
        name
        for name, record in desired.inventory.items()
        if name in own or name not in base or differs(base[name], record)
    )


def _addition(present: Provider, configured: Configured) -> Addition:
    records = {
        name: record for name, record in present.inventory.items() if name in configured.classes
    }
    return Addition(records, frozenset(configured.traits & present.traits))
