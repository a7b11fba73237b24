import json
import subprocess
import sys

import pytest

from agent.__main__ import main
from agent.cli.main import run


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
