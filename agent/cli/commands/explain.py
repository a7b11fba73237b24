"""``agent explain``: whether and why a request fits each node of this agent, by Placement and by
the host, or with ``--anywhere`` what Placement says of all nodes. Writes nothing.

The nodes are read as in a dry run: by the driver and from the store, also beside a daemon.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Event

from oslo_config import cfg

from agent.audit.context import AuditOptions
from agent.audit.explaining import explain_anywhere, explain_node
from agent.audit.fleet import Fleet
from agent.bootstrap.fleet import running_fleet
from agent.cli.command import Commands, Options
from agent.cli.explained_request import AskedRequest, ExplainRefused, asked_request
from agent.cli.output import write, write_document
from agent.errors import AgentError, PlacementUnreachable
from agent.explain.explanation import (
    AnywhereAnswer,
    ExplainedRequest,
    NodeExplanation,
    guest_here,
    has_guest,
)
from agent.explain.scheduler_query import SchedulerQuery
from agent.model.finding import DONE, FAILED
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.report import NodeReport, Report
from agent.placement import clock
from agent.placement.allocations.candidates import check_candidates_offered
from agent.render.document import problems_of
from agent.render.explain import Explanation, explain_document, render_explanation
from agent.render.look import look_of

DOES_NOT_FIT = 2


def explain_request(conf: cfg.ConfigOpts, options: Options) -> int:
    """Explain the request. Return the exit code: DONE if it fits a node, else DOES_NOT_FIT; FAILED
    if that is unknown of every node.

    :raises AgentError: there is no request, the configuration cannot be used, or Placement or the
        driver do not answer.
    """
    asked = asked_request(options.arguments)
    with running_fleet(conf, Event(), dry_run=True) as fleet:
        pci = fleet.context.pci
        if asked.guest is not None:
            found = _guest_explanation(fleet, options, asked.guest)
        else:
            request = asked.explained(pci.aliases, devices_in_placement=pci.report)
            found = _explanation(fleet, options, asked, request)
    found = replace(found, exit_code=_exit_code(found))
    if options.as_document:
        write_document(explain_document(found), options)
    else:
        write(render_explanation(found, look_of(sys.stdout)))
    return found.exit_code


def _explanation(
    fleet: Fleet, options: Options, asked: AskedRequest, request: ExplainedRequest
) -> Explanation:
    names = options.nodes or ((asked.node,) if asked.node is not None else ())
    report = fleet.run(AuditOptions(dry_run=True, adopt=True, start=True), names)
    return Explanation(
        request.query.query,
        tuple(_nodes(fleet, report.nodes, request, options)),
        _anywhere(fleet, request.query, options),
        report.errors,
        report.notice,
    )


def _anywhere(fleet: Fleet, query: SchedulerQuery, options: Options) -> AnywhereAnswer | None:
    if not options.arguments["anywhere"]:
        return None
    server = fleet.context.server
    client = server.client()
    check_candidates_offered(server.connect(client))
    return explain_anywhere(client, query)


def _guest_explanation(fleet: Fleet, options: Options, guest: ConsumerUuid) -> Explanation:
    """Explain a guest on the node of this agent that has it.

    :raises AgentError: no node has it, its flavor is not known, or contradicts itself.
    """
    report = fleet.run(AuditOptions(dry_run=True, adopt=True, start=True), options.nodes)
    states = fleet.states()
    for node in report.nodes:
        state = states.get(ProviderUuid(node.uuid))
        if state is None or not has_guest(state, guest):
            continue
        here = guest_here(
            state, guest, node.tree, clock.now(), devices_in_placement=fleet.context.pci.report
        )
        explained = _with_audit(here.explained(clock.now()), node)
        return Explanation(
            here.query.query,
            (explained,),
            _anywhere(fleet, here.query, options),
            report.errors,
            report.notice,
            guest=here.claim.instance,
        )
    raise _no_guest(guest, report)


def _nodes(
    fleet: Fleet, nodes: Sequence[NodeReport], request: ExplainedRequest, options: Options
) -> Iterator[NodeExplanation]:
    """Yield the explanation of each node. An error of one is part of its explanation."""
    states = fleet.states()
    lost: PlacementUnreachable | None = None
    for node in nodes:
        uuid = ProviderUuid(node.uuid)
        if uuid not in states:
            yield NodeExplanation(node.name, uuid, problems=node.errors)
            continue
        server = fleet.context.server
        client = server.client()
        if lost is not None:
            # Each node would wait for an answer as long as the one before.
            yield NodeExplanation(node.name, uuid, problems=problems_of(lost))
            continue
        try:
            check_candidates_offered(server.connect(client))
            explained = explain_node(
                client,
                states[uuid],
                request,
                clock.now(),
                devices_in_placement=fleet.context.pci.report,
                with_suggestions=options.arguments["suggest"],
            )
        except AgentError as error:
            lost = error if isinstance(error, PlacementUnreachable) else None
            yield NodeExplanation(node.name, uuid, problems=problems_of(error))
            continue
        yield _with_audit(explained, node)


def _with_audit(explained: NodeExplanation, node: NodeReport) -> NodeExplanation:
    """Return the explanation with what the dry run of the node's audit found."""
    pending = sum(outcome.status == "planned" for outcome in node.outcomes)
    # A uuid that was generated for this run alone means nothing to anybody.
    shown = ProviderUuid("") if node.provisional else explained.uuid
    return replace(explained, uuid=shown, pending=pending, problems=node.errors)


def _no_guest(guest: ConsumerUuid, report: Report) -> AgentError:
    """Return why a guest cannot be explained that no node of this agent has."""
    for problem in (*report.errors, *(one for node in report.nodes for one in node.errors)):
        return ExplainRefused(
            f"guest {guest}: not found, and not all is known: {problem.message}", problem.remedy
        )
    return ExplainRefused(f"no node of this agent has guest {guest}", "see all: agent guests list")


def _exit_code(found: Explanation) -> int:
    if found.fits:
        return DONE
    if found.guest is not None:
        return DOES_NOT_FIT
    known = found.anywhere is not None or any(node.placement is not None for node in found.nodes)
    return DOES_NOT_FIT if known else FAILED


RUN: Commands = {
    ("explain",): explain_request,
}
