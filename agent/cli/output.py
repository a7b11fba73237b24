"""What goes to stdout and stderr. stdout holds the report and nothing else, and one JSON document at most.

What makes text for people is loaded when there is some, because the daemon has none.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from agent.cli.options import Format
from agent.errors import OutputFailed
from agent.model.report import Problem, Report
from agent.render.json_report import dumps, report_document


def write_report(report: Report, chosen: Format) -> None:
    """The report of a run."""
    if chosen == "json":
        write_document(report_document(report))
        return
    from agent.render.look import look_of
    from agent.render.text import render_report

    write(render_report(report, look_of(sys.stdout)))


def write_document(document: Mapping[str, Any]) -> None:
    """A JSON document of a command."""
    write(dumps(document))


def write(text: str) -> None:
    """Text to stdout; what its encoding lacks is escaped. A reader that has gone away is no error.

    :raises OutputFailed: it cannot be written.
    """
    try:
        _put(text, sys.stdout)
    except BrokenPipeError:
        _drop(sys.stdout)
    except OSError as error:
        _drop(sys.stdout)
        raise OutputFailed(f"the report cannot be written: {error.strerror}", "check what stdout leads to") from error


def write_problems(problems: Sequence[Problem]) -> None:
    """Errors to stderr. Nobody is left to tell if that fails."""
    from agent.render.look import look_of
    from agent.render.text import render_problems

    try:
        _put(render_problems(problems, look_of(sys.stderr)), sys.stderr)
    except OSError:
        _drop(sys.stderr)


def _put(text: str, stream: TextIO) -> None:
    encoding = stream.encoding or "ascii"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _drop(stream: TextIO) -> None:
    # Python writes what is left in the buffer once more at exit; there it would be a traceback.
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), stream.fileno())
