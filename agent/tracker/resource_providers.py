"""Which provider of the node's tree counts each device, cell and mediated device: the one that
Placement has, or the one that this pass creates, because claims come before the next pass. Pure.
"""

from agent.model.facts import HostFacts
from agent.model.mdev import MdevParent, MdevSource
from agent.model.names import ProviderUuid, child_uuid
from agent.model.provider_tree import ProviderTree
from agent.tracker.node_state import NodeState
from agent.tree.cell_tree import cell_name
from agent.tree.device_names import card_of, device_provider_name
from agent.tree.host_tree import choose_layout
from agent.tree.policy import Policy


def device_providers(state: NodeState, present: ProviderTree) -> dict[str, ProviderUuid]:
    """Return the provider that counts each device: the one that Placement has, or the one that this
    pass creates, because claims come before the next pass.

    Cards that are gone are included by their addresses: a guest with an allocation of such a card
    must not get another device instead.
    """
    root, names = (
        state.node.uuid,
        {
            address: device_provider_name(state.node.name, device.parent or device.address)
            for address, device in state.devices.items()
        },
    )
    counting = {
        address: present.provider(name).uuid if present.exists(name) else child_uuid(root, name)
        for address, name in names.items()
    }
    node = present.name_of(root) if present.exists(root) else state.node.name
    children = (
        map(present.provider, present.get_provider_uuids(root)) if present.exists(root) else ()
    )
    # Found by their names alone, because their traits may have been removed by others.
    gone = {
        str(card): provider.uuid
        for provider in children
        if (card := card_of(provider.name, node)) is not None
        and provider.uuid not in counting.values()
    }
    return {**gone, **counting}


def cell_providers(
    state: NodeState, present: ProviderTree, policy: Policy
) -> dict[ProviderUuid, int]:
    """Return the cell that each provider counts, existing or created by this pass.

    Where the root counts all cells, these are the cell providers that are left of a nested layout,
    because the scheduler allocates from them until they are gone.
    """
    root = state.node.uuid
    nested = choose_layout(policy, present, root) == "nested"
    names = {
        cell.id: cell_name(
            present.name_of(root) if present.exists(root) else state.node.name, cell.id
        )
        for cell in state.cells
    }
    return {
        present.provider(name).uuid if present.exists(name) else child_uuid(root, name): number
        for number, name in names.items()
        if nested or present.exists(name)
    }


def mdev_sources(
    state: NodeState, facts: HostFacts, present: ProviderTree, policy: Policy
) -> tuple[MdevSource, ...]:
    """Return the parents of mediated devices, with the providers that count them, existing or
    created by this pass.
    """
    root = state.node.uuid
    node = present.name_of(root) if present.exists(root) else state.node.name

    def provider(parent: MdevParent, resource_class: str) -> ProviderUuid:
        name = parent.provider_name(node)
        if resource_class in policy.on_root:
            return root
        return present.provider(name).uuid if present.exists(name) else child_uuid(root, name)

    return tuple(
        MdevSource(
            provider(parent, kind.resource_class),
            kind.resource_class,
            parent.name,
            kind.name,
            total,
            parent.numa_node,
        )
        for parent, kind, total in policy.mdev.offered(facts.mdev or ())
    )
