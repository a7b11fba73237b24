"""A root provider whose name another provider has: what that one has, and the way out."""

from contextlib import suppress

from agent.audit.context import AuditedNode
from agent.audit.run import AuditRun
from agent.errors import AgentError, ProviderNameConflict
from agent.model.names import ProviderUuid
from agent.store.identity import HostIdentity


def tell_way_out(run: AuditRun, node: AuditedNode, identity: HostIdentity | None) -> None:
    """Add to the name conflict of the root of ``node``, if the audit met it, what the holder has
    and the remedy that fits what proves the identity of this host.
    """
    for place, conflict in enumerate(run.errors):
        if not isinstance(conflict, ProviderNameConflict) or conflict.data["uuid"] != node.uuid:
            continue
        holder: ProviderUuid = conflict.data["holder"]
        message = conflict.message
        # What cannot be read is left out: the conflict stays the same.
        with suppress(AgentError):
            below, consumers = len(run.client.tree(holder)) - 1, len(run.client.consumers(holder))
            message += (
                f"; consumers with allocations on it: {consumers}, providers below it: {below}"
            )
        remedy = _remedy(holder, node, identity)
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
