import json
import subprocess
import sys

import pytest

from agent.__main__ import main
from agent.cli.main import run
from agent.errors import StoreError

DOCUMENT = ["schema", "agent", "placement", "dry_run", "nodes", "requests", "errors", "exit_code"]


@pytest.fixture
def answers(monkeypatch):
    """Replaces the audit and the daemon."""

    def stand_in(doing):
        monkeypatch.setattr("agent.cli.commands.audit.audit_once", doing)
        monkeypatch.setattr("agent.service.daemon.run", doing)

    return stand_in


def raising(error):
    def doing(*_):
        raise error

    return doing


def test_wrong_usage_is_one_document_as_json(capsys):
    assert run(["--format", "json", "--nonsense"]) == 64
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert list(document) == DOCUMENT
    assert document["exit_code"] == 64
    assert document["errors"][0]["code"] == "usage.invalid"
    assert captured.err.startswith("usage: agent")


def test_configuration_errors_are_one_document_as_json(capsys):
    assert (
        run(
            [
                "--once",
                "--dry-run",
                "--format",
                "json",
                "--compute-workers",
                "x",
                "--compute-facts_deadline",
                "y",
            ]
        )
        == 1
    )
    document = json.loads(capsys.readouterr().out)
    assert list(document) == DOCUMENT
    assert [error["code"] for error in document["errors"]] == ["config.invalid", "config.invalid"]
    assert (document["nodes"], document["dry_run"], document["exit_code"]) == ([], True, 1)


def test_errors_of_the_agent_are_1(answers, capsys):
    answers(raising(StoreError("the store is gone", "find it")))
    assert run(["--once", "--host", "h", "--placement-backend", "embedded"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "the store is gone [store.unusable]" in captured.err
    assert "find it" in captured.err
    assert (
        run(["--once", "--host", "h", "--placement-backend", "embedded", "--format", "json"]) == 1
    )
    document = json.loads(capsys.readouterr().out)
    assert document["errors"] == [
        {"code": "store.unusable", "message": "the store is gone", "remedy": "find it"}
    ]
    assert document["agent"]["host"] == "h"
    assert document["placement"]["mode"] == "embedded"


def test_a_bug_is_1_with_its_traceback_in_the_log(answers, capsys):
    answers(raising(ZeroDivisionError("oops")))
    assert run(["--once", "--format", "json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["errors"][0]["code"] == "agent.bug"
    assert "Traceback" in captured.err


def test_an_interrupt_is_130(answers, capsys):
    answers(raising(KeyboardInterrupt()))
    assert run(["--once", "--format", "json"]) == 130
    assert json.loads(capsys.readouterr().out)["exit_code"] == 130


def test_version_of_a_process_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['agent', '--version']; from agent.__main__ import main; main(); "
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"oslo_config", "keystoneauth1", "rich", "sqlalchemy", "argparse"}.isdisjoint(
        done.stdout.split()
    )


def test_closed_stdout_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "argv", ["agent", "--version"])
    assert main() == 0
    sys.stdout.close()
