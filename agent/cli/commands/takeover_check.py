"""``agent takeover check``: what speaks against this agent in place of nova-compute on this host,
and what would change at first. Writes nothing.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from threading import Event

from keystoneauth1.exceptions import ClientException
from keystoneauth1.identity.base import BaseIdentityPlugin
from oslo_config import cfg

from agent.api.client import ApiProblem, ApiUnreachable
from agent.audit.context import AuditOptions
from agent.bootstrap.components import Components, check_configuration
from agent.bootstrap.fleet import open_run_store, start_fleet
from agent.cli.command import Commands, Options
from agent.cli.commands.nova_compute import nova_compute_checks, service_check
from agent.cli.config_warnings import unknown_options
from agent.cli.daemon_client import from_daemon
from agent.cli.guests_here import guests_here
from agent.cli.output import answer
from agent.conf.default import host_name, only_observes
from agent.deadline import within
from agent.errors import AgentError, PlacementRefused
from agent.model.finding import CHANGED, CONFLICTS, DONE, FAILED
from agent.model.mirror import REPARENT
from agent.model.names import ProviderUuid, name_first, number_of, printable
from agent.model.provider_tree import ProviderTree
from agent.model.report import NodeReport, Report
from agent.placement.client import PlacementClient
from agent.placement.server import Server
from agent.placement.transport import Transport
from agent.render.checks import SCHEMA, Check, render_checks, worst_verdict
from agent.render.document import Document
from agent.render.look import look_of
from agent.tree.desired_tree import other_marks
from agent.tree.host_tree import layout_and_reason
from agent.tree.policy import Policy

PLAN = "agent --once --adopt --dry-run"
# Drift that other checks tell.
_TOLD = frozenset({*CONFLICTS, "unknown-domain"})


def check_takeover(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show every check with its verdict and the next command. Return the exit code: FAILED if
    anything blocks; with ``--detailed-exitcode`` CHANGED if there are warnings.
    """
    checks = [*nova_compute_checks(), *_daemon_checks(conf), *_host_checks(conf, options)]
    verdict = worst_verdict(checks)
    code = {"ok": DONE, "warning": CHANGED if options.detailed_exitcode else DONE}.get(
        verdict, FAILED
    )
    host = host_name(conf)
    document = {"host": host, "verdict": verdict, "checks": [asdict(check) for check in checks]}
    text = render_checks(host, checks, look_of(sys.stdout))
    return answer(options, SCHEMA, document, text, code)


# --- the daemon -----------------------------------------------------------------------------------


def _daemon_checks(conf: cfg.ConfigOpts) -> Iterator[Check]:
    """Yield a check of each node of which the daemon knows that another program changes back what
    it writes.
    """
    name = "rival-writer"
    try:
        nodes = from_daemon(
            conf, lambda daemon: [daemon.node(node["uuid"]) for node in daemon.nodes()]
        )
    except (ApiProblem, ApiUnreachable) as error:
        yield Check(name, "warning", f"not known: {error.message}", error.remedy)
        return
    if nodes is None:
        what = "not known: no daemon of the agent runs that could notice one"
        later = "look again once the agent has taken over and runs: agent takeover check"
        yield Check(name, "unknown", what, later)
        return
    found = [drift for node in nodes for drift in node["drift"] if drift["kind"] == name]
    for drift in found:
        yield Check(name, "blocks", drift["detail"], drift["remedy"])
    if not found:
        yield Check(name, "ok", "nobody changes back what the agent writes")


# --- configuration --------------------------------------------------------------------------------


def _host_checks(conf: cfg.ConfigOpts, options: Options) -> Iterator[Check]:
    """Yield the checks that need a valid configuration; without one its errors."""
    if only_observes(conf):
        yield Check(
            "configuration",
            "warning",
            "[DEFAULT] mode = observe: the agent writes nothing",
            "remove it for the takeover",
        )
        # Only for the plan of a takeover, which writes nothing either.
        conf.set_override("mode", "manage")
    found = check_configuration(conf, Event(), daemon=True)
    if found.components is None:
        for error in found.errors:
            yield Check("configuration", "blocks", error.message, error.remedy)
        return
    if found.components.transport is not None:
        # Nothing is written, whatever the mode is.
        found.components.transport.read_only = True
    yield service_check(found.components.nova, host_name(conf))
    yield from _option_checks(conf, found.components)
    yield from _guest_checks(conf, options)
    yield from _audit_checks(conf, options, found.components)


def _option_checks(conf: cfg.ConfigOpts, components: Components) -> Iterator[Check]:
    """Yield the options that this agent honours otherwise than nova, or not at all."""
    texts = [*components.warnings, *map(str, unknown_options(conf))]
    for text in texts:
        yield Check("option", "warning", text, "agent config check")
    if not texts:
        yield Check("option", "ok", "every option that decides what nova reports is honoured")


# --- guests ---------------------------------------------------------------------------------------


def _guest_checks(conf: cfg.ConfigOpts, options: Options) -> Iterator[Check]:
    try:
        nodes = guests_here(conf, options, imports=False, dry_run=True)
    except AgentError as error:
        yield Check("guests", "blocks", error.message, error.remedy)
        return
    for node in nodes:
        yield from _guests_of_node(node)


def _guests_of_node(node: Document) -> Iterator[Check]:
    name = printable(node["name"])
    for error in node["errors"]:
        yield Check("guests", "blocks", error["message"], error["remedy"])
    outcomes = Counter(guest["outcome"] for guest in node["guests"])
    if missing := outcomes["importable"]:
        what = f"{name}: {number_of(missing, 'guest')} of {len(node['guests'])} without a record"
        yield Check("guests", "blocks", what, "agent guests import")
    for guest in node["guests"]:
        for refusal in guest["refusals"] if guest["outcome"] == "refused" else ():
            what = f"guest {guest['uuid']} cannot have a record: {refusal['reason']}"
            yield Check("guests", "blocks", what, refusal["remedy"] or "agent guests list")
    if not (node["errors"] or missing or outcomes["refused"]):
        what = f"{name}: {number_of(len(node['guests']), 'guest')}, each with a record"
        yield Check("guests", "ok", what)


# --- the plan -------------------------------------------------------------------------------------


def _audit_checks(
    conf: cfg.ConfigOpts, options: Options, components: Components
) -> Iterator[Check]:
    """Yield what the first audit after the takeover would do, and what it would refuse."""
    cancelled = Event()
    audit = AuditOptions(dry_run=True, adopt=True, start=True, reread=True)
    try:
        with (
            open_run_store(conf, dry_run=True) as store,
            start_fleet(conf, components, store, cancelled, dry_run=True) as fleet,
        ):
            report = fleet.run(audit, options.nodes)
            checks = [*placement_checks(fleet.context.server, report.nodes, host_name(conf))]
    except AgentError as error:
        checks = [Check("refused", "blocks", error.message, error.remedy)]
        report = None
    yield from checks
    if report is not None:
        yield from _plan_checks(report)
    if report is None or not any(node.judged for node in report.nodes):
        yield _layout_of_options(components.policy)


def _layout_of_options(policy: Policy) -> Check:
    """Return what is known of the layout without an audit."""
    layout, reason = layout_and_reason(policy, ProviderTree(), "")
    if policy.layout:
        return Check("layout", "ok", f"the tree is {layout}, because {reason}")
    there = "a root that Placement has keeps its layout"
    return Check("layout", "unknown", f"{there}; else the tree is {layout}, because {reason}", PLAN)


def _plan_checks(report: Report) -> Iterator[Check]:
    for problem in report.errors:
        yield Check("refused", "blocks", problem.message, problem.remedy)
    for node in report.nodes:
        for problem in node.errors:
            yield Check("refused", "blocks", problem.message, problem.remedy)
        if node.layout:
            yield Check("layout", "ok", f"{printable(node.name)}: {node.layout}")
        if node.judged:
            yield _changes(node)
        yield from _drift(node)


def _changes(node: NodeReport) -> Check:
    name = printable(node.name)
    counts = Counter(outcome.operation.op for outcome in node.outcomes)
    if not counts:
        return Check("changes", "ok", f"{name}: nothing would change in Placement")
    parts = ", ".join(f"{op} {count}" for op, count in sorted(counts.items()))
    what = f"{name}: {number_of(counts.total(), 'operation')} at first: {parts}"
    return Check("changes", "ok", what, PLAN)


def _drift(node: NodeReport) -> Iterator[Check]:
    """Yield a check for each kind of drift that is a warning."""
    found: dict[str, list[str]] = {}
    for drift in node.drift:
        if drift.severity == "warning" and drift.kind not in _TOLD:
            found.setdefault(drift.kind, []).append(drift.detail)
    for kind, details in found.items():
        more = f" and {len(details) - 1} more" if len(details) > 1 else ""
        yield Check("drift", "warning", f"{kind}: {details[0]}{more}", PLAN)


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
        yield _role_check(_account_roles(server.transport))
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
            what = f"the root of {name} has the mark of another agent: {name_first(marks)}"
            yield Check("another-agent", "blocks", what, "stop that agent")


RUN: Commands = {
    ("takeover", "check"): check_takeover,
}


def _account_roles(transport: Transport) -> frozenset[str] | None:
    """Return the roles of the account, as its token names them; None if its credentials are of a
    kind without a token of the identity service, or that service does not answer.
    """
    session = transport.adapter.session
    auth = transport.adapter.auth or session.auth
    if not isinstance(auth, BaseIdentityPlugin):
        return None
    try:
        with within(transport.timeouts.whole):
            return frozenset(auth.get_access(session).role_names or ())
    except ClientException:
        return None
