"""What each command writes with ``--format json`` is valid by the schema that ``agent schema`` prints
for it. :attr:`tests.support.system.Result.json` checks every document that any test reads; here
all commands run that need no daemon, and each one writes the document of its line in the table.
"""

from pathlib import Path

import pytest

from agent.api.openapi import PREFIX, VERSION, document_names
from agent.cli.command_table import COMMANDS, find
from tests.functional.cli.setups import on
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere, Result

A, B = "4f8f1f5e-3c54-4c3a-8f55-0b9a5c4b1d2e", "0d5e7c31-92a4-4b68-9f1d-6a3c8e20b574"
QUERY = ("resources=VCPU:2,MEMORY_MB:512",)
OWNER = ("--project-id", "7a1c5e0f", "--user-id", "0d5e7c31")
SCENARIO: tuple[tuple[str, ...], ...] = (
    ("--once", "--dry-run"),
    ("--once",),
    ("config", "check"),
    ("provider-config", "check", str(CHECKOUT / "etc" / "provider_config")),
    ("identity", "show"),
    ("db", "upgrade"),
    ("db", "backup", "backup.sqlite"),
    ("db", "restore", "--dry-run", "backup.sqlite"),
    ("status",),
    ("drift", "--offline"),
    ("tree",),
    ("resources",),
    ("claims",),
    ("migrations",),
    ("guests", "list"),
    ("guests", "import", "--dry-run"),
    ("pci", "check"),
    ("report", "nodes.html"),
    ("schema",),
    ("completion", "bash"),
    ("driver", "check", "fake.small"),
    ("explain", *QUERY),
    ("takeover", "check"),
    ("candidates", *QUERY),
    ("allocation", "claim", A, *QUERY, *OWNER),
    ("allocation", "show", A),
    ("allocation", "add", A, "node-a", "VCPU=1"),
    ("allocation", "remove", A, "node-a", "VCPU=1"),
    ("allocation", "list", "node-a"),
    ("allocation", "move", A, B),
    ("usages", "7a1c5e0f", "--user-id", "0d5e7c31"),
    ("allocation", "put", B, "record.json"),
    ("allocation", "remove-tree", "--dry-run", B, "node-a"),
    ("allocation", "delete", B),
    ("aggregate", "add-host", A, "node-a"),
    ("aggregate", "remove-host", A, "node-a"),
    ("pci", "unreport", "--dry-run", "node-a"),
    ("takeover", "undo", "--dry-run"),
    ("decommission", "node-a"),
    ("identity", "set", B),
    ("db", "set-aside"),
)
ELSEWHERE = {
    ("identity", "rename"): "tests/functional/test_renamed_hosts.py",
    ("reload",): "tests/functional/test_daemon_provider_config.py",
    ("guests", "forget"): "tests/functional/cli/test_guests.py",
    ("pci", "cleaned"): "tests/functional/cli/test_record_commands.py",
    ("claim", "create"): "tests/functional/cli/test_record_commands.py",
    ("claim", "abort"): "tests/functional/cli/test_record_commands.py",
    ("claim", "show"): "tests/functional/cli/test_record_commands.py",
    ("migrate", "claim"): "tests/functional/cli/test_record_commands.py",
    ("migrate", "finish"): "tests/functional/cli/test_record_commands.py",
    ("migrate", "confirm"): "tests/functional/cli/test_record_commands.py",
    ("migrate", "revert"): "tests/functional/cli/test_record_commands.py",
    ("migrate", "abort"): "tests/functional/cli/test_record_commands.py",
}
"""Commands that need a daemon or a scene of their own, and the tests that read their documents."""


def words_of(line: tuple[str, ...]) -> tuple[str, ...]:
    """The words of the command in a command line."""
    return next(
        (command.words for command in COMMANDS if line[: len(command.words)] == command.words), ()
    )


def test_every_command_is_run_here_or_elsewhere() -> None:
    run = {words_of(line) for line in SCENARIO} - {()}
    assert run.isdisjoint(ELSEWHERE)
    with_document = {command.words for command in COMMANDS if command.document_name}
    assert run | ELSEWHERE.keys() == with_document
    for file in ELSEWHERE.values():
        assert ".json" in (CHECKOUT / file).read_text(encoding="utf-8"), file


def test_every_document_is_valid_and_the_one_of_the_table(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentHere(tmp_path / "agent", on(http_placement))
    agent.folder.mkdir(exist_ok=True)
    for line in SCENARIO:
        result = agent.run(*line, "--format", "json")
        expected = {f"{PREFIX}{find(words_of(line), once=True).document_name}{VERSION}"}
        assert {result.json["schema"]} == expected, result
        if line[:2] == ("allocation", "move"):
            keep(agent.run("allocation", "show", B, "--format", "json"), agent)


def keep(shown: Result, agent: AgentHere) -> None:
    """Write what was shown into the file that ``allocation put`` reads."""
    (agent.folder / "record.json").write_text(shown.stdout, encoding="utf-8")


@pytest.mark.parametrize("name", sorted(document_names()))
def test_the_schema_of_each_document_is_printed(name: str, tmp_path: Path) -> None:
    agent = AgentHere(tmp_path)
    printed = agent.run("schema", name)
    assert printed.code == 0, printed
    assert printed.json["title"] == f"{PREFIX}{name}{VERSION}"
    assert agent.run("schema", f"{PREFIX}{name}{VERSION}").stdout == printed.stdout


def test_a_document_that_there_is_not_is_an_error_that_names_the_others(tmp_path: Path) -> None:
    refused = AgentHere(tmp_path).run("schema", "reprot")
    assert refused.code == 1
    assert "reprot: no document of that name" in refused.stderr
    assert "report" in refused.stderr


def test_an_error_is_a_report(tmp_path: Path) -> None:
    result = AgentHere(tmp_path).run("tree", "--format", "json")
    assert result.code == 1
    assert result.json["schema"] == f"{PREFIX}report{VERSION}"
