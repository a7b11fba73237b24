"""Output to stdout and stderr. stdout gets the report and nothing else: at most one document."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from agent.cli.command import Options
from agent.errors import OutputFailed
from agent.model.finding import DONE, Problem
from agent.render.document import dumps, name_program, render_problems, yaml_dumps
from agent.render.look import look_of

NAME = "agent"


def name_options(options: Options) -> None:
    """Have every command of a remedy from now on find what this run finds; without secrets, which
    it must not show.
    """
    words = [_program(sys.argv[0])]
    for source in options.sources:
        words += ["--config-dir" if source.is_folder else "--config-file", str(source.path)]
    for override in options.overrides:
        words += override.words
    name_program(shlex.join(words))


def _program(called: str) -> str:
    """Return the word by which the shell finds this agent: its name, or the path that it was
    ``called`` by, if another or none has the name.
    """
    if Path(called).name != NAME:
        return NAME
    known = shutil.which(NAME)
    return (
        NAME
        if known is not None and os.path.realpath(known) == os.path.realpath(called)
        else called
    )


def write_document(document: Mapping[str, Any], options: Options) -> None:
    """Write the document of a command as JSON, or as YAML with the same content."""
    write(yaml_dumps(document) if options.format == "yaml" else dumps(document))


def answer(
    options: Options, schema: str, document: Mapping[str, Any], text: str, code: int = DONE
) -> int:
    """Write the document of a command under its schema, or its text. Return ``code``."""
    if options.as_document:
        ending = {"errors": [], "exit_code": code}
        write_document({"schema": schema, **document, **ending}, options)
    else:
        write(text)
    return code


def write(text: str) -> bool:
    """Write text to stdout. Characters that its encoding lacks are escaped. A closed pipe is no
    error: return whether anybody reads.

    :raises OutputFailed: stdout cannot be written.
    """
    try:
        _put(text, sys.stdout)
    except BrokenPipeError:
        _drop(sys.stdout)
        return False
    except OSError as error:
        _drop(sys.stdout)
        raise OutputFailed(
            f"the report cannot be written: {error.strerror}", "check what stdout leads to"
        ) from error
    return True


def write_problems(problems: Sequence[Problem], places: Sequence[str] = ()) -> None:
    """Write errors to stderr; a failure of that is ignored. ``places``: where each error comes
    from, empty if unknown.
    """
    try:
        text = render_problems(problems, look_of(sys.stderr), places)
        _put(text, sys.stderr)
    except OSError:
        _drop(sys.stderr)


def _put(text: str, stream: TextIO) -> None:
    encoding = stream.encoding or "ascii"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def _drop(stream: TextIO) -> None:
    # Python would write the rest of the buffer at exit, and a failure there is a traceback.
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), stream.fileno())
