"""What is known without a write of the account at Placement, and of the roots of the nodes."""

from collections.abc import Iterator, Sequence

from agent.errors import AgentError, PlacementRefused
from agent.model.mirror import REPARENT
from agent.model.names import ProviderUuid, printable
from agent.model.report import NodeReport
from agent.placement.client import PlacementClient
from agent.placement.connect import account_roles
from agent.placement.server import Server
from agent.render.takeover import Check
from agent.tree.desired_tree import other_marks

_GIVE_ROLE = "openstack role add --user USER --project PROJECT service"
# Placement's default policy asks for the same roles for reads and writes of providers, and for
# the role service for the reshaper.
_WRITERS = frozenset({"admin", "service"})
_FIRST_WRITE = "a policy that was changed shows with the first write only"


def placement_checks(server: Server, nodes: Sequence[NodeReport], agent: str) -> Iterator[Check]:
    """Yield the checks of Placement, which an audit has asked before. ``agent``: the name that
    marks the roots of this agent.
    """
    known = server.capabilities
    if known is None:
        # The errors of the audit say why.
        return
    said = f"{known.endpoint} offers microversion {known.max_version}"
    if known.offers(REPARENT):
        yield Check("placement", "ok", said)
    else:
        what = f"{said}: below {REPARENT} no provider can be moved below another one"
        yield Check("placement", "warning", what, "upgrade Placement to OpenStack Ussuri or later")
    client = server.client()
    try:
        client.known_traits(["COMPUTE_NODE"])
        yield _role_check(account_roles(server.transport))
        for node in nodes:
            yield from _root_checks(client, node, agent)
    except PlacementRefused as error:
        if error.status != 403:
            yield Check("role", "blocks", error.message, error.remedy)
        else:
            yield Check("role", "blocks", "the account may not even read providers", _GIVE_ROLE)
    except AgentError as error:
        yield Check("placement", "blocks", error.message, error.remedy)


def _role_check(roles: frozenset[str] | None) -> Check:
    if roles is None:
        return Check(
            "role",
            "ok",
            "the account may read providers; by Placement's default policy it may write them too, "
            f"and needs the role service to move allocations; {_FIRST_WRITE}",
        )
    has = f"the account has the roles {', '.join(sorted(roles)) or 'none'}"
    if "service" in roles:
        return Check("role", "ok", f"{has}: enough by the default policy; {_FIRST_WRITE}")
    if _WRITERS & roles:
        what = f"{has}: not the role service, which moving allocations needs"
        return Check("role", "warning", what, _GIVE_ROLE)
    return Check("role", "blocks", f"{has}: by the default policy it may not write", _GIVE_ROLE)


def _root_checks(client: PlacementClient, node: NodeReport, agent: str) -> Iterator[Check]:
    name = printable(node.name)
    root = ProviderUuid(node.uuid)
    if node.provisional:
        yield Check(
            "identity",
            "blocks",
            "this host has no uuid yet: nova's file compute_id is neither beside a --config-file "
            "nor in [DEFAULT] state_path",
            "give the --config-file of nova-compute, or the uuid that Placement has: "
            "agent identity set UUID",
        )
    elif client.provider(root) is None:
        what = f"Placement has no provider {root} of {name}: there is nothing to take over"
        yield Check("identity", "warning", what, "agent identity show")
    else:
        yield Check("identity", "ok", f"{name} is provider {root}")
        if marks := sorted(other_marks(client.traits(root)[1], agent)):
            what = f"the root of {name} has the mark of another agent: {', '.join(marks)}"
            yield Check("another-agent", "blocks", what, "stop that agent")
