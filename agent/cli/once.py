"""``agent --once``: one audit of every node, or of the named ones."""

import sys
from dataclasses import replace
from threading import Event

from oslo_config import cfg

from agent.audit.context import AuditOptions
from agent.bootstrap.fleet import running_fleet
from agent.cli.options import Options
from agent.cli.unknown_options import warn_of_unknown
from agent.model.report import Report, exit_code
from agent.render.progress import node_progress


def audit_once(conf: cfg.ConfigOpts, options: Options) -> Report:
    """Audit the nodes, flush unless it is a dry run, and return the report.

    :raises AgentError: the audit could not begin.
    """
    audit_options = AuditOptions(
        dry_run=options.dry_run,
        adopt=options.adopt,
        start=True,
        reread=options.reread,
        with_usages=options.with_usages,
    )
    complete = False
    try:
        with (
            running_fleet(conf, Event(), dry_run=options.dry_run) as fleet,
            node_progress(sys.stderr) as progress,
        ):
            complete = True
            report = fleet.run(audit_options, options.nodes, progress)
    finally:
        # Afterwards, because driver and monitors register options of their own; also after an
        # error, because an unknown option may be its cause.
        warn_of_unknown(conf, complete=complete)
    return replace(
        report, exit_code=exit_code(report.nodes, report.errors, detailed=options.detailed_exitcode)
    )
