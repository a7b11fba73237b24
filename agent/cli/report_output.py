"""The output of a run's report, in every format that a report has."""

import socket
import sys
import time
from collections.abc import Sequence

from oslo_config import cfg

from agent.cli.command import FOR_MONITORING, Options
from agent.cli.output import write, write_document
from agent.conf.default import host_name
from agent.model.finding import Problem
from agent.model.report import Report, failed_report
from agent.render.json_report import report_document
from agent.render.look import look_of


def write_report(report: Report, options: Options) -> int:
    """Write the report of a run, in the format of the options. Return the exit code: for Nagios
    that of a plug-in.

    :raises OutputFailed: stdout cannot be written.
    """
    if options.as_document:
        write_document(report_document(report), options)
    elif options.format in FOR_MONITORING:
        # Imported here, because Prometheus' library is large.
        from agent.render.monitoring import (
            PLUGIN_CODES,
            plugin_state,
            render_plugin,
            render_textfile,
        )

        if options.format == "nagios":
            write(render_plugin(report))
            return PLUGIN_CODES[plugin_state(report)]
        write(render_textfile(report, time.time()))
    else:
        from agent.render.text import render_report

        write(render_report(report, look_of(sys.stdout, wide=options.wide)))
    return report.exit_code


def failed_run(
    options: Options, problems: Sequence[Problem], code: int, conf: cfg.ConfigOpts | None
) -> Report:
    """Return the report of a run that ended with errors instead of a result."""
    return failed_report(
        host_name(conf) if conf is not None else socket.gethostname(),
        problems,
        embedded=conf is not None and conf.placement.backend == "embedded",
        dry_run=options.dry_run,
        exit_code=code,
    )
