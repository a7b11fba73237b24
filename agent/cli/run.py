"""``agent`` without a command: the daemon in the foreground. ``agent --once``: one audit of every
node, or of the named ones.
"""

import logging
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

from oslo_config import cfg

from agent.audit.context import AuditOptions
from agent.bootstrap.fleet import running_fleet
from agent.cli.command import Options
from agent.cli.configuration import load
from agent.cli.exposures import exposures
from agent.cli.logs import set_up_logging
from agent.cli.unknown_options import warn_of_unknown
from agent.conf.default import only_observes
from agent.errors import AgentError, ConfigError
from agent.model.report import FAILED, Report, exit_code
from agent.render.json_report import problems_of


def audit_once(conf: cfg.ConfigOpts, options: Options) -> Report:
    """Audit the nodes, flush unless it is a dry run, and return the report.

    :raises AgentError: the audit could not begin, or a page could not be written later.
    """
    # Imported here, because the daemon shows neither progress nor pages, and would keep 3 MiB.
    from agent.cli.page_file import check_file, write_audit_page
    from agent.render.progress import node_progress

    observes, rename = only_observes(conf), options.command == ("identity", "rename")
    if observes and (options.adopt or rename):
        what = "agent identity rename writes" if rename else "--adopt takes a tree over"
        raise ConfigError(f"{what}, and [DEFAULT] mode is observe", "leave it out")
    if options.remove_deleted and (observes or options.nodes):
        raise ConfigError(
            "--remove-deleted is about all nodes of an agent that manages them",
            "leave it out with --node and with [DEFAULT] mode = observe",
        )
    dry_run = options.dry_run or observes
    audit_options = AuditOptions(
        dry_run=dry_run,
        adopt=options.adopt or observes,
        rename=rename,
        start=not observes,
        reread=options.reread,
        remove_deleted=options.remove_deleted,
        with_usages=options.with_usages,
    )
    path = check_file(options.report) if options.report is not None else None
    complete = False
    try:
        with (
            running_fleet(conf, Event(), dry_run=dry_run) as fleet,
            node_progress(sys.stderr) as progress,
        ):
            complete = True
            report = fleet.run(audit_options, options.nodes, progress)
            if path is not None:
                try:
                    write_audit_page(path, report, fleet)
                except ConfigError as error:
                    # The audit was done all the same: what it did is reported.
                    report = replace(report, errors=(*report.errors, *problems_of(error)))
    finally:
        # Afterwards, because driver and monitors register options of their own; also after an
        # error, because an unknown option may be its cause.
        warn_of_unknown(conf, complete=complete)
    return replace(
        report, exit_code=exit_code(report.nodes, report.errors, detailed=options.detailed_exitcode)
    )


LOG = logging.getLogger(__name__)


def run_daemon(conf: cfg.ConfigOpts, options: Options) -> int:
    """Run the daemon until it is stopped. Return its exit code. An error of its start is logged
    too, unless the log goes to stderr, where the error is written anyway.

    :raises AgentError: the daemon could not start.
    """
    # Imported here, because an audit does not need it.
    from agent.service import daemon
    from agent.service.log_writer import WRITER

    code = FAILED
    try:
        code = daemon.run(conf, partial(load, options), partial(set_up_logging, once=False), _warn)
    except AgentError as error:
        if not conf.use_stderr:
            for problem in problems_of(error):
                LOG.error("the agent cannot start: %s (%s)", problem.message, problem.remedy)
        raise
    finally:
        if not WRITER.finish():
            # Python's own end would wait for the thread that writes.
            os._exit(code)
    return code


def _warn(conf: cfg.ConfigOpts, complete: bool) -> None:
    """Log warnings of settings that are valid but may not be meant."""
    for line in exposures(conf, map(Path, conf.config_file)):
        LOG.warning("%s", line)
    warn_of_unknown(conf, complete=complete)
