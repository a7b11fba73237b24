"""``agent --once`` and ``agent identity rename``: one audit of every node, or of the named ones."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Event, Thread
from typing import TextIO

from oslo_config import cfg

from agent.audit.context import AuditOptions
from agent.bootstrap.fleet import running_fleet
from agent.cli.command import Commands, Options
from agent.cli.commands.report import check_file, write_audit_page
from agent.cli.config_warnings import warn_of_unknown
from agent.cli.report_output import write_report
from agent.conf.default import only_observes
from agent.errors import AgentError, ConfigError
from agent.model.names import printable
from agent.model.report import Report, exit_code
from agent.placement.transport import Transport
from agent.render.document import problems_of
from agent.render.look import look_of

LOG = logging.getLogger(__name__)

# The number of nodes from which on progress is shown.
MANY = 5
LOG_STEPS = 10

Finished = Callable[[str], None]


@contextmanager
def node_progress(stream: TextIO) -> Iterator[Callable[[int], Finished]]:
    """Yield a function that takes the number of nodes; it returns a function to call with the name
    of each finished node, from any thread.

    The bar goes to ``stream``, which is stderr, because stdout is for the report. The bar is
    removed when the work is done.
    """
    look = look_of(stream)
    with ExitStack() as stack:

        def begin(total: int) -> Finished:
            if total < MANY:
                return lambda _name: None
            if look.width is None:
                return _log_progress(total)
            # Imported here, because it takes a twentieth of a short audit.
            from rich import progress as bar
            from rich.console import Console

            console = Console(
                file=stream,
                color_system="standard" if look.colour else None,
                no_color=not look.colour,
                legacy_windows=False,
            )
            columns = (
                bar.TextColumn("auditing"),
                bar.BarColumn(),
                bar.MofNCompleteColumn(),
                bar.TimeElapsedColumn(),
                bar.TextColumn("{task.description}", markup=False),
            )
            progress = stack.enter_context(bar.Progress(*columns, console=console, transient=True))
            task = progress.add_task("", total=total)
            return lambda name: progress.update(task, advance=1, description=printable(name))

        yield begin


def _log_progress(total: int) -> Finished:
    done = 0

    def finished(name: str) -> None:
        nonlocal done
        done += 1
        if done == total or done * LOG_STEPS // total > (done - 1) * LOG_STEPS // total:
            LOG.info("%d of %d nodes audited, last %s", done, total, printable(name))

    return finished


# Seconds of a wait after which a run says who it waits for.
QUIET = 5.0


def run_audit(conf: cfg.ConfigOpts, options: Options) -> int:
    """Make the audit, and write its report. Return the exit code.

    :raises AgentError: as :func:`audit_once`.
    """
    return write_report(audit_once(conf, options), options)


def audit_once(conf: cfg.ConfigOpts, options: Options) -> Report:
    """Audit the nodes, flush unless it is a dry run, and return the report.

    :raises AgentError: the audit could not begin, or a page could not be written later.
    """
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
    complete, failure = False, None
    try:
        with (
            running_fleet(conf, Event(), dry_run=dry_run) as fleet,
            node_progress(sys.stderr) as progress,
            _telling_of_a_wait(fleet.context.server.transport),
        ):
            complete = True
            report = fleet.run(audit_options, options.nodes, progress)
            if path is not None:
                try:
                    write_audit_page(path, report, fleet)
                except ConfigError as error:
                    # The audit was done all the same: what it did is reported.
                    report = replace(report, errors=(*report.errors, *problems_of(error)))
    except AgentError as error:
        failure = error
    # Afterwards, because driver and monitors register options of their own; also after an error,
    # because an unknown option may be its cause, but not where oslo.log would add it to each line.
    warn_of_unknown(conf, complete=complete)
    if failure is not None:
        raise failure
    return replace(
        report, exit_code=exit_code(report.nodes, report.errors, detailed=options.detailed_exitcode)
    )


@contextmanager
def _telling_of_a_wait(transport: Transport) -> Iterator[None]:
    """Log who does not answer, once, while the block waits for it."""

    done = Event()

    def tell() -> None:
        while not done.wait(QUIET / 4):
            if awaited := transport.awaited(QUIET):
                LOG.warning("waiting for %s", awaited)
                return

    Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        done.set()


RUN: Commands = {
    (): run_audit,
    ("identity", "rename"): run_audit,
}
