"""The entry of the command line: parses the arguments, loads the configuration, runs the command,
and reports errors.
"""

import gc
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import FrameType

from oslo_config import cfg

from agent.cli.command import FOR_MONITORING, Commands, Options
from agent.cli.command_table import find
from agent.cli.configuration import load, place_of, place_text, read_configuration
from agent.cli.logs import log_to_stderr, quiet_libraries, set_up_logging
from agent.cli.output import name_options, write_problems
from agent.cli.parser import find_format, parse
from agent.errors import (
    AgentBug,
    AgentError,
    AlreadyTold,
    ConfigError,
    ConfigErrors,
    OutputFailed,
    UsageError,
)
from agent.model.finding import FAILED, INTERRUPTED, USAGE, Problem
from agent.render.document import problems_of

LOG = logging.getLogger(__name__)


class Interrupted(AgentError):
    """The run was ended by SIGINT.
    Remedy: repeat the command; what was begun is completed.
    """

    code = "agent.interrupted"


class Terminated(BaseException):
    """A signal ends the command. No ``except Exception`` stops it on its way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(argv: Sequence[str]) -> int:
    """Run the command line ``argv``, the words after ``agent``. Return the exit code.

    :raises SystemExit: help was asked for.
    """
    quiet_libraries()
    try:
        options = parse(argv)
    except UsageError as error:
        sys.stderr.write(error.usage)
        return _failed(Options(format=find_format(argv)), problems_of(error), USAGE)
    name_options(options)
    invocation = _Invocation(options)
    try:
        # The daemon waits for its signals.
        with _ended_by_signals() if options.once or options.command else nullcontext():
            return invocation.code()
    except Terminated as ended:
        # As without the exception: the parent process sees what has ended the command.
        signal.raise_signal(ended.number)
        raise
    except OutputFailed as error:
        write_problems(problems_of(error))
        return FAILED
    except AgentError as error:
        return (
            error.exit_code
            if isinstance(error, AlreadyTold)
            else _failed(
                options,
                problems_of(error),
                FAILED,
                invocation.conf,
                _places(error, invocation),
            )
        )
    except KeyboardInterrupt:
        return _failed(
            options, [Problem(Interrupted.code, "interrupted", "")], INTERRUPTED, invocation.conf
        )
    except Exception as error:
        # Every expected error is an AgentError. A bug too ends with one document and an exit code.
        LOG.critical("unexpected error", exc_info=True)
        return _failed(options, problems_of(AgentBug.of(error)), FAILED, invocation.conf)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Raise an exception at SIGTERM and SIGHUP, so that no temporary file is left and the terminal
    gets its cursor back. A second signal ends the process at once.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated(number)

    # Only the main thread may set handlers. What ignores a signal goes on doing so, as under nohup.
    here = threading.current_thread() is threading.main_thread()
    heeded = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if here and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in heeded:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)


def _search_for_garbage() -> None:
    """Have Python search for garbage, but not in the code that is loaded, if the process has
    loaded it without.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


class _Invocation:
    """One run of a command line, and its configuration once it is loaded."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.conf: cfg.ConfigOpts | None = None

    def code(self) -> int:
        """Run the command. Return the exit code."""
        options = self.options
        command = find(options.command, options.once)
        self.conf = conf = (
            read_configuration(options, local=command.local).conf
            if command.lenient
            else load(options, local=command.local)
        )
        if command.local:
            log_to_stderr(debug=options.debug)
        else:
            set_up_logging(conf, once=options.once or bool(options.command), debug=options.debug)
        commands: Commands = import_module(f"agent.cli.commands.{command.module}").RUN
        _search_for_garbage()
        return commands[command.words](conf, options)


def _places(error: AgentError, invocation: _Invocation) -> list[str]:
    """Return where the files set the options that the parts of an error are about."""
    conf = invocation.conf
    if conf is None or not isinstance(error, ConfigError):
        return []
    given = {(one.group or "DEFAULT", one.name) for one in invocation.options.overrides}
    parts = error.errors if isinstance(error, ConfigErrors) else (error,)
    rows = [{**place_of(part, conf), "message": part.message} for part in parts]
    return ["" if (row["section"], row["option"]) in given else place_text(row) for row in rows]


def _failed(
    options: Options,
    problems: Sequence[Problem],
    code: int,
    conf: cfg.ConfigOpts | None = None,
    places: Sequence[str] = (),
) -> int:
    """Report errors that came instead of a result. Return ``code``."""
    if not options.as_document and options.format not in FOR_MONITORING:
        write_problems(problems, places)
        return code
    # Imported here, because a command that asks the daemon makes no report else.
    from agent.cli.report_output import failed_run, write_report

    try:
        return write_report(failed_run(options, problems, code, conf), options)
    except OutputFailed as error:
        write_problems(problems_of(error))
        return code
