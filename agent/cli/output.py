"""What goes to stdout and stderr. stdout holds the report and nothing else, and one JSON document
at most.

What makes text for people is loaded when there is some, because the daemon has none.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from agent.cli.options import Options
from agent.errors import OutputFailed
from agent.model.report import Problem, Report
from agent.render.json_report import dumps, report_document, yaml_dumps


def write_report(report: Report, options: Options) -> None:
    """The report of a run."""
    if options.as_document:
        write_document(report_document(report), options)
        return
    from agent.render.look import look_of
    from agent.render.text import render_report

    write(
        render_report(
            report, look_of(sys.stdout, wide=options.wide), as_table=options.format == "table"
        )
    )


def write_document(document: Mapping[str, Any], options: Options) -> None:
    """The document of a command, as JSON or as YAML that holds the same."""
    write(yaml_dumps(document) if options.format == "yaml" else dumps(document))


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
        raise OutputFailed(
            f"the report cannot be written: {error.strerror}", "check what stdout leads to"
        ) from error


def write_problems(problems: Sequence[Problem], places: Sequence[str] = ()) -> None:
    """Errors to stderr; ``places``: for each where it comes from, if that is known. Nobody is left
    to tell if that fails.
    """
    from agent.render.look import look_of
    from agent.render.text import render_problems

    try:
        _put(render_problems(problems, look_of(sys.stderr), places), sys.stderr)
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
