"""What every bad input must come to: an exit code, one message with a remedy, one JSON document,
nothing written.
"""

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agent.store.engines import FILE_NAME as STORE
from tests.functional.cli.folder import all_of
from tests.support.placement import Placement
from tests.support.system import AgentCommand

REQUEST_ID = re.compile(r" \(Request-ID: req-[0-9a-f-]+\)")
DOCUMENT = ("schema", "agent", "placement", "dry_run", "nodes", "requests", "errors", "exit_code")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below, but the run lock's, which has the pid of the last run in it."""
    return {
        name: content
        for name, (*_, content) in all_of(folder).items()
        if (folder / name).is_file() and Path(name).name != "lock"
    }


def kept(folder: Path) -> dict[str, object]:
    """The same, but what a store says of the node itself: who manages it, what it has and what audits
    found is written whatever comes of the audit.
    """
    return {
        name: _told(folder / name) if Path(name).name == STORE else content
        for name, content in contents(folder).items()
    }


def _told(file: Path) -> object:
    with (
        suppress(sqlite3.DatabaseError),
        closing(sqlite3.connect(f"file:{quote(str(file))}?immutable=1", uri=True)) as connection,
    ):
        return [
            line
            for line in connection.iterdump()
            if not re.match(r'INSERT INTO "(lease|compute_node|last_audit)"', line)
        ]
    return file.read_bytes()


def refused(
    agent: AgentCommand,
    placement: Placement | None,
    *arguments: str,
    code: int = 1,
    env: Mapping[str, str] | None = None,
    command: tuple[str, ...] = ("--once",),
    tracebacks: int = 0,
) -> list[dict[str, Any]]:
    """Run, as JSON and as text. Returns the problems that were told.

    ``tracebacks``: how many are in the log, as of a driver that raises what nobody foresees.
    Neither Placement nor a file of the agent's has changed afterwards, and the agent's folder was
    not made if there was none.
    """
    before, existed = (kept(agent.folder), placement and placement.dump()), agent.store.exists()
    document = agent.run(*command, "--format", "json", *arguments, env=env)
    assert document.code == code, document
    # The check of a configuration tells more.
    assert tuple(document.json)[: len(DOCUMENT)] == DOCUMENT
    assert document.json["exit_code"] == code
    problems = [
        *document.json["errors"],
        *(error for node in document.json["nodes"] for error in node["errors"]),
    ]
    text = agent.run(*command, *arguments, env=env)
    assert text.code == code, text
    shown = REQUEST_ID.sub("", text.stdout + text.stderr)
    shown = shown.replace(f"agent --config-file {agent.config_file} ", "agent ")
    for problem in problems:
        assert problem.keys() == {"code", "message", "remedy"}
        assert problem["message"]
        assert problem["remedy"], problem
        assert (
            shown.count(REQUEST_ID.sub("", f"✗ {problem['message']} [{problem['code']}]\n")) == 1
        ), text
        # The ways of a remedy and its commands are lines there.
        assert _words(problem["remedy"]) in _words(shown)
    for result in (document, text):
        assert result.stderr.count("Traceback (most recent call last)") == tracebacks, result
        assert "\x1b" not in result.stdout + result.stderr
    assert (kept(agent.folder), placement and placement.dump()) == before
    assert existed or not agent.store.exists() or problems_of_a_first_run(problems)
    return problems


def _words(text: str) -> str:
    return " ".join(text.replace("; ", " ").split())


def problems_of_a_first_run(problems: list[dict[str, Any]]) -> bool:
    """Whether they can only be found with the store open: by then the node has its identity, which
    it keeps.
    """
    return all(problem["code"] != "config.invalid" for problem in problems)


def the_only(problems: list[dict[str, Any]]) -> dict[str, Any]:
    (problem,) = problems
    return problem
