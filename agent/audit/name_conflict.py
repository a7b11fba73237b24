"""A root provider whose name another provider has: what that one has, and the way out."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from agent.audit.context import AuditContext, AuditedNode
from agent.audit.run import AuditRun
from agent.errors import AgentError, ProviderNameConflict
from agent.model.names import AGENT_MARK, ProviderUuid
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.node_state import NodePlacementState
from agent.store.identity import HostIdentity
from agent.tree.desired_tree import agent_trait


def tell_way_out(
    run: AuditRun, node: AuditedNode, context: AuditContext, state: NodePlacementState
) -> None:
    """Add to the name conflict of the root of ``node``, if the audit met it, what the holder has
    and the remedy that fits what proves the identity of this host.
    """
    for place, conflict in enumerate(run.errors):
        if not isinstance(conflict, ProviderNameConflict) or conflict.data["uuid"] != node.uuid:
            continue
        holder: ProviderUuid = conflict.data["holder"]
        message, remedy = conflict.message, _remedy(holder, node, context.identity)
        # What cannot be read is left out: the conflict stays the same.
        with suppress(AgentError):
            rows, consumers = run.client.tree(holder), len(run.client.consumers(holder))
            message += (
                f"; consumers with allocations on it: {consumers}, providers below it: "
                f"{len(rows) - 1}"
            )
            if _wrote_root(state, node.uuid) and (
                agent_trait(context.agent) in run.client.traits(holder)[1]
            ):
                # Both are this host.
                steps = [*_moves(run.client, rows, holder, state, node.uuid), *_deletions(rows)]
                remedy = (
                    "this host was that provider for a while, and becomes one again by: "
                    f"{' && '.join(steps)} && agent identity rename; if they are two hosts: "
                    "rename one of them"
                )
        run.errors[place] = ProviderNameConflict(message, remedy, **conflict.data)


def _remedy(holder: ProviderUuid, node: AuditedNode, identity: HostIdentity | None) -> str:
    if identity is None or identity.uuid != node.uuid:
        return (
            "rename one of the two nodes; if the other one is gone: openstack resource provider "
            f"delete {holder}"
        )
    if identity.source == "nova":
        same = f"write {holder} into {identity.place}, from which nova-compute has it too"
    else:
        same = f"agent identity set {holder}"
    return f"if this host is that provider: {same}; if they are two hosts: rename one of them"


def _wrote_root(state: NodePlacementState, root: ProviderUuid) -> bool:
    """Return whether this agent has written the root in Placement, under whatever name: the root
    has a mark, and the journal each mark of it. That the journal has the root is no proof, because
    a rename that was refused was noted there before.
    """
    tree = state.view.tree
    marks = (
        {trait for trait in tree.provider(root).traits if trait.startswith(AGENT_MARK)}
        if tree.exists(root)
        else set()
    )
    return bool(marks) and marks <= state.journal.of(root).traits


def _moves(
    client: PlacementClient,
    rows: Sequence[Row],
    holder: ProviderUuid,
    state: NodePlacementState,
    root: ProviderUuid,
) -> Iterator[str]:
    """Yield the commands that give the node ``root`` what consumers have of the tree of ``holder``:
    first they get it here, so that they are never without it. A consumer that has its share here
    already only loses the other one.
    """
    tree = state.view.tree.scoped(root)
    own = {one.name.removeprefix(tree.name_of(root)): one for one in tree.providers()}
    name = next(row.name for row in rows if row.uuid == holder)
    there = {row: client.consumers(row.uuid) for row in rows}
    consumers = sorted({consumer for held in there.values() for consumer in held})
    here = (
        {consumer for one in tree.providers() for consumer in client.consumers(one.uuid)}
        if consumers
        else set()
    )
    for consumer in consumers:
        shares = {row: held[consumer] for row, held in there.items() if consumer in held}
        targets = {row: own.get(row.name.removeprefix(name)) for row in shares}
        if consumer not in here:
            if any(
                target is None or not shares[row].keys() <= target.inventory.keys()
                for row, target in targets.items()
            ):
                # The other tree has another layout: nova chooses anew.
                yield f"openstack server migrate {consumer}"
                continue
            for row, target in targets.items():
                assert target is not None
                amounts = " ".join(f"{key}={some}" for key, some in sorted(shares[row].items()))
                yield f"agent allocation add {consumer} {target.uuid} {amounts}"
        yield f"agent allocation remove-tree {consumer} {holder}"


def _deletions(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the commands that delete a tree, children first."""
    left = {row.uuid: row for row in rows}
    while left:
        parents = {row.parent_uuid for row in left.values()}
        for uuid in sorted(left.keys() - parents):
            yield f"openstack resource provider delete {uuid}"
            del left[uuid]
