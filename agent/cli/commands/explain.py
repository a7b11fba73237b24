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
from agent.cli.explained_request import AskedRequest, asked_request
from agent.cli.output import write, write_document
from agent.errors import AgentError, PlacementUnreachable
from agent.explain.explanation import ExplainedRequest, NodeExplanation
from agent.model.names import ProviderUuid
from agent.model.report import DONE, FAILED, NodeReport
from agent.placement import clock
from agent.placement.allocations.candidates import check_candidates_offered
from agent.render.explain import Explanation, explain_document, render_explanation
from agent.render.json_report import problems_of
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
    server = fleet.context.server
    anywhere = None
    if options.arguments["anywhere"]:
        client = server.client()
        check_candidates_offered(server.connect(client))
        anywhere = explain_anywhere(client, request.query)
    return Explanation(
        request.query.query,
        tuple(_nodes(fleet, report.nodes, request, options)),
        anywhere,
        report.errors,
        report.notice,
    )


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
        pending = sum(outcome.status == "planned" for outcome in node.outcomes)
        # A uuid that was generated for this run alone means nothing to anybody.
        shown = ProviderUuid("") if node.provisional else uuid
        yield replace(explained, uuid=shown, pending=pending, problems=node.errors)


def _exit_code(found: Explanation) -> int:
    if found.fits:
        return DONE
    known = found.anywhere is not None or any(node.placement is not None for node in found.nodes)
    return DOES_NOT_FIT if known else FAILED


RUN: Commands = {
    ("explain",): explain_request,
}
