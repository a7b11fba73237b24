"""A host whose name, or whose guests, another root provider has: what that one has, and the way
out.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from agent.audit.context import AuditContext, AuditedNode
from agent.audit.observation import Need, Observation, TreeOf, WholeAllocations
from agent.audit.run import AuditRun
from agent.errors import AgentError, ProviderIdentityConflict, ProviderNameConflict
from agent.model.inventory import Resources
from agent.model.mirror import Consumers
from agent.model.names import AGENT_MARK, ConsumerUuid, ProviderUuid, printable
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.placement.node_state import NodePlacementState
from agent.tracker.allocations import OF_A_NODE, is_used_elsewhere
from agent.tree.desired_tree import agent_trait


def guests_elsewhere(seen: Observation) -> Need | None:
    """Return what has to be read to see whether a host that may be is published already, as another
    root: a guest of it has its allocation there. None if it is not.

    :raises ProviderIdentityConflict: it is; a second tree would offer everything twice.
    """
    root, guests = seen.root, seen.facts.domains or ()
    # One is enough, of nova's if there is one: the others have no allocations.
    guest = min(guests, key=lambda one: (one.origin is None, one.uuid)).uuid
    whole = WholeAllocations("home", (guest,))
    if seen.lacks(whole):
        return whole
    allocation = seen.answers[whole].get(guest)
    if allocation is None or not is_used_elsewhere(allocation, ()):
        return None
    tree = TreeOf(
        min(uuid for uuid, held in allocation.resources.items() if not OF_A_NODE.isdisjoint(held))
    )
    if seen.lacks(tree):
        return tree
    above = [row for row in seen.answers[tree] if row.parent_uuid is None]
    if not above:
        return None
    raise ProviderIdentityConflict(
        f"guest {guest} runs here and has its allocation on provider {above[0].uuid}, "
        f"{printable(above[0].name)!r} in Placement; this host has lost its uuid, and another "
        f"provider for it, {printable(seen.node.name)!r}, would offer all of it twice",
        f"see the guests of that provider: agent allocation list {above[0].uuid}; if this host is "
        f"that provider: {_same_host(above[0].uuid, seen.context)}; if it is another host: agent "
        f"identity set {root}",
        uuid=root,
    )


def tell_way_out(
    run: AuditRun,
    conflict: ProviderNameConflict,
    node: AuditedNode,
    context: AuditContext,
    state: NodePlacementState,
) -> None:
    """Add to ``conflict``, which the audit met because of the name of the root of ``node``, what
    the holder has and the remedy that fits what proves the identity of this host.
    """
    holder: ProviderUuid = conflict.data["holder"]
    message, remedy = conflict.message, _remedy(holder, node, context)
    same = {holder}
    # What cannot be read is left out: the conflict stays the same.
    with suppress(AgentError):
        rows = run.client.tree(holder)
        same = {row.uuid for row in rows}
        held = _held(run.client, [row for row in rows if row.uuid == holder])
        if not held[holder]:
            # A guest that holds nothing of the root holds something of a cell. The devices are not
            # asked about, because a conflict that stays is told in each pass.
            held |= _held(run.client, [row for row in rows if "_NUMA" in row.name])
        message += f"; {_holders(held, run)}, providers below it: {len(rows) - 1}"
        if state.view.tree.exists(node.uuid) and (
            agent_trait(context.agent) in run.client.traits(holder)[1]
        ):
            held |= _held(run.client, [row for row in rows if row.uuid not in held])
            remedy = _one_again(run, rows, holder, held, state, node.uuid)
    # The children of one provider have the names of the children of the other for the same reason.
    ended = {
        str(error): error.message
        for error in run.errors
        if isinstance(error, ProviderNameConflict) and error.data["holder"] in same
    }
    run.errors = [
        ProviderNameConflict(message, remedy, **conflict.data) if error is conflict else error
        for error in run.errors
        if error is conflict or str(error) not in ended
    ]
    # The remedy stands at one place.
    run.outcomes = [
        replace(outcome, error=ended.get(outcome.error, outcome.error))
        if outcome.error
        else outcome
        for outcome in run.outcomes
    ]


def _held(
    client: PlacementClient, rows: Sequence[Row]
) -> dict[ProviderUuid, Mapping[ConsumerUuid, Resources]]:
    uuids = [row.uuid for row in rows]
    return dict(zip(uuids, client.exchange.each(client.consumers, uuids), strict=True))


def _holders(held: Consumers, run: AuditRun) -> str:
    consumers = {consumer for some in held.values() for consumer in some}
    here = _guests(run) & consumers
    where = "it" if len(held) == 1 else "it or its cells"
    return f"consumers with allocations on {where}: {len(consumers)}" + (
        f", of which {len(here)} run here" if here else ""
    )


def _guests(run: AuditRun) -> set[ConsumerUuid]:
    """Return the guests that the hypervisor shows."""
    return {guest.uuid for guest in (run.facts.domains if run.facts else None) or ()}


def _remedy(holder: ProviderUuid, node: AuditedNode, context: AuditContext) -> str:
    identity = context.identity
    if identity is None or identity.uuid != node.uuid:
        return (
            "rename one of the two nodes; if the other one is gone: openstack resource provider "
            f"delete {holder}"
        )
    return (
        f"see the guests of that provider: agent allocation list {holder}; if this host is it: "
        f"{_same_host(holder, context)}; if they are two hosts: rename one of them"
    )


def _same_host(holder: ProviderUuid, context: AuditContext) -> str:
    """Return what makes this host the provider ``holder``."""
    identity = context.identity
    if identity is not None and identity.source == "nova":
        return f"write {holder} into {identity.place}, from which nova-compute has it too"
    if context.observes:
        return (
            "give nova's own --config-file, or [DEFAULT] state_path, beside which its compute_id "
            f"is; if there is none: agent identity set {holder}"
        )
    return f"agent identity set {holder}"


def _one_again(
    run: AuditRun,
    rows: Sequence[Row],
    holder: ProviderUuid,
    held: Consumers,
    state: NodePlacementState,
    root: ProviderUuid,
) -> str:
    """Return the remedy for a host that cannot be renamed because a provider that has its mark has
    the new name: mostly both are this host.
    """
    steps = [*_moves(run.client, rows, holder, held, state, root), *_deletions(rows)]
    way = f"{' && '.join(steps)} && agent identity rename"
    guests = _guests(run)
    own = state.view.subtree(root).get_provider_uuids()
    if _wrote_root(state, root) or (
        guests and any(guests & run.client.consumers(uuid).keys() for uuid in own)
    ):
        return (
            f"this host was that provider for a while, and becomes one again by: {way}; if they "
            "are two hosts: rename one of them"
        )
    return (
        f"see the guests of {root}: agent allocation list {root}; if this host is {root}, and was "
        f"that provider for a while, it becomes one again by: {way}; if it never was {root}: "
        f"agent identity set {holder}"
    )


def _wrote_root(state: NodePlacementState, root: ProviderUuid) -> bool:
    """Return whether this agent has written the root in Placement, under whatever name: the root
    has a mark, and the journal each mark of it. That the journal has the root is no proof, because
    a rename that was refused was noted there before.
    """
    traits = state.view.tree.provider(root).traits
    marks = {trait for trait in traits if trait.startswith(AGENT_MARK)}
    return bool(marks) and marks <= state.journal.of(root).traits


def _moves(
    client: PlacementClient,
    rows: Sequence[Row],
    holder: ProviderUuid,
    there: Consumers,
    state: NodePlacementState,
    root: ProviderUuid,
) -> Iterator[str]:
    """Yield the commands that give the node ``root`` what consumers have of the tree of ``holder``:
    first they get it here, so that they are never without it. A consumer that has its share here
    already only loses the other one.
    """
    tree = state.view.tree.scoped(root)
    own = {one.name.removeprefix(tree.name_of(root)): one for one in tree.providers()}
    names = {row.uuid: row.name for row in rows}
    consumers = sorted({consumer for held in there.values() for consumer in held})
    here = (
        {consumer for one in tree.providers() for consumer in client.consumers(one.uuid)}
        if consumers
        else set()
    )
    for consumer in consumers:
        shares = {uuid: held[consumer] for uuid, held in there.items() if consumer in held}
        targets = {uuid: own.get(names[uuid].removeprefix(names[holder])) for uuid in shares}
        if consumer not in here:
            if any(
                target is None or not shares[uuid].keys() <= target.inventory.keys()
                for uuid, target in targets.items()
            ):
                # The other tree has another layout: nova chooses anew.
                yield f"openstack server migrate {consumer}"
                continue
            for uuid, target in targets.items():
                assert target is not None
                amounts = " ".join(f"{key}={some}" for key, some in sorted(shares[uuid].items()))
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
