"""Runs one command line: parse, configure, dispatch, and tell what went wrong."""

import logging
import socket
import sys
from collections.abc import Sequence
from functools import partial

from oslo_config import cfg

from agent.cli import command_table
from agent.cli.configuration import load
from agent.cli.logs import quiet_libraries, set_up_logging
from agent.cli.options import Options
from agent.cli.output import write_problems, write_report
from agent.cli.parser import parse, wants_json
from agent.conf.default import host_name
from agent.errors import AgentBug, AgentError, OutputFailed, UsageError
from agent.model.exit_codes import FAILED, INTERRUPTED, USAGE
from agent.model.report import Problem, Report
from agent.render.problems import problems_of
from agent.version import agent_version

LOG = logging.getLogger(__name__)


def run(argv: Sequence[str]) -> int:
    """The exit code of ``argv``, the words after ``agent``.

    :raises SystemExit: help was asked for.
    """
    quiet_libraries()
    try:
        options = parse(argv)
    except UsageError as error:
        sys.stderr.write(error.usage)
        return _failed(Options(format="json" if wants_json(argv) else "text"), problems_of(error), USAGE)
    invocation = _Invocation(options)
    try:
        return invocation.code()
    except OutputFailed as error:
        write_problems(problems_of(error))
        return FAILED
    except AgentError as error:
        return _failed(options, problems_of(error), FAILED, invocation.conf)
    except KeyboardInterrupt:
        return _failed(options, [Problem("agent.interrupted", "interrupted", "")], INTERRUPTED, invocation.conf)
    except Exception as error:
        # Everything foreseen is an AgentError. This is a bug, and even then there is one document and an exit code.
        LOG.critical("unexpected error", exc_info=True)
        bug = AgentBug(f"unexpected error: {type(error).__name__}: {error}")
        return _failed(options, problems_of(bug), FAILED, invocation.conf)


class _Invocation:
    """One command line at work, and its configuration as soon as there is one."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.conf: cfg.ConfigOpts | None = None

    def code(self) -> int:
        """Do what the options ask for. Returns the exit code."""
        options = self.options
        self.conf = conf = load(options)
        command = command_table.find(options.command, options.once)
        is_daemon = command is command_table.DAEMON
        set_up_logging(conf, once=not is_daemon, debug=options.debug)
        run = command_table.function(command)
        if is_daemon:
            code: int = run(conf, partial(load, options), partial(set_up_logging, once=False))
        elif command is command_table.AUDIT:
            report: Report = run(conf, options)
            write_report(report, options.format)
            code = report.exit_code
        else:
            code = run(conf, options)
        return code


def _failed(options: Options, problems: Sequence[Problem], code: int, conf: cfg.ConfigOpts | None = None) -> int:
    """Tell errors that came instead of a report."""
    if options.format == "text":
        write_problems(problems)
        return code
    embedded = conf is not None and conf.placement.backend == "embedded"
    report = Report(
        version=agent_version(),
        host=host_name(conf) if conf is not None else socket.gethostname(),
        mode="embedded" if embedded else "http",
        endpoint=None,
        max_version=None,
        dry_run=options.dry_run,
        errors=problems,
        exit_code=code,
    )
    try:
        write_report(report, "json")
    except OutputFailed as error:
        write_problems(problems_of(error))
    return code
