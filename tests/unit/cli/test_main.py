import errno
import io
import json
import logging
import os
import subprocess
import sys

import pytest

from agent.__main__ import main
from agent.cli import logs
from agent.cli.configuration import load
from agent.cli.logs import set_up_logging
from agent.cli.main import run
from agent.cli.output import write, write_problems
from agent.cli.parser import parse
from agent.errors import ConfigError, OutputFailed
from agent.model.finding import Problem
from agent.model.mirror import Journal, Ownership, PlacementView
from agent.model.names import printable
from agent.model.provider_tree import ProviderTree
from agent.store.store import open_store
from tests.unit.render.reports import CELL, ROOT, tree


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


def test_no_garbage_is_searched_for_while_the_code_of_a_command_is_loaded():
    code = """
import gc, sys
from agent.__main__ import main
loaded = []
def begun(*_):
    loaded.append(hasattr(sys.modules.get("agent.cli.commands.audit"), "RUN"))
gc.collect()
gc.callbacks.append(begun)
sys.argv = ["agent", "--config-file", "/dev/null", "--once", "--adopt", "--mode", "observe"]
assert main() == 1
gc.collect()
assert all(loaded) and loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_closed_stdout_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "argv", ["agent", "--version"])
    assert main() == 0
    sys.stdout.close()


# --- more ---


class Pipe(io.TextIOWrapper):
    """A stream on a real descriptor whose writes fail."""

    def __init__(self, error: OSError):
        self.end = os.open(os.devnull, os.O_WRONLY)
        super().__init__(io.FileIO(self.end, "w"), encoding="utf-8")
        self.error = error

    def write(self, text):
        raise self.error


def test_what_the_encoding_lacks_is_escaped(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    write("nöde \udcff\n")
    assert raw.getvalue() == b"n\\xf6de \\udcff\n"


def test_half_characters_do_not_stop_utf8(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    write("nöde \udcff\n")
    assert raw.getvalue() == "nöde \\udcff\n".encode()


def test_a_full_disk_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Pipe(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OutputFailed, match="No space left on device"):
        write("text\n")


def test_errors_that_cannot_be_told_do_not_raise(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Pipe(OSError(errno.ENOSPC, "No space left on device")))
    write_problems([Problem("x", "y", "z")])


# --- more ---


@pytest.fixture
def nova_conf(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text(
        f"[DEFAULT]\ndebug = true\nlog_dir = {tmp_path}\nlog_file = nova.log\nuse_syslog = "
        "true\npublish_errors = true\n"
    )
    return str(file)


def said(capsys):
    log = logging.getLogger("agent.anything")
    log.debug("a detail")
    log.info("a step")
    log.warning("a warning")
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_once_tells_no_more_for_loggers_that_default_log_levels_raise(nova_conf, capsys):
    set_up_logging(load(parse(["--once", "--config-file", nova_conf])), once=True)
    logging.getLogger("oslo_policy").info("chatter")
    assert "chatter" not in said(capsys)


@pytest.mark.parametrize(
    "setting",
    [
        "log_file = /no/such/folder/agent.log",
        "log_config_append = /no/such/file",
        "default_log_levels = agent=LOUD",
    ],
)
def test_a_log_that_cannot_be_written_is_a_configuration_error(tmp_path, setting):
    file = tmp_path / "agent.conf"
    file.write_text(f"[DEFAULT]\n{setting}\n")
    conf = load(parse(["--config-file", str(file)]))
    with pytest.raises(ConfigError) as caught:
        set_up_logging(conf, once=False)
    assert caught.value.remedy


def test_bodies_of_requests_are_not_logged_even_with_debug(capsys):
    set_up_logging(load(parse(["--once", "--debug"])), once=True, debug=True)
    for name in (
        "keystoneauth.session",
        "keystoneauth.identity.v3",
        "urllib3.connectionpool",
        "stevedore.extension",
    ):
        logging.getLogger(name).debug("X-Auth-Token: secret")
    assert "secret" not in capsys.readouterr().err


def test_a_line_without_colours_is_escaped_as_one_text(monkeypatch):
    escaped = []
    monkeypatch.setattr(logs, "printable", lambda text: escaped.append(text) or printable(text))
    record = logging.LogRecord("n", logging.INFO, "f", 1, "said \x07", (), None)
    # As oslo.log sets them for a handler without colours.
    record.color = record.reset_color = ""
    assert logs.Masking(logging.Formatter("%(message)s")).format(record) == "said \\x07"
    assert escaped == ["said \x07"]


# --- more ---


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def agent(folder, tmp_path, capsys):
    def call(*argv):
        code = run(
            [
                *argv,
                "--store-path",
                str(folder),
                "--state_path",
                str(tmp_path / "nova"),
                "--host",
                "node-1",
            ]
        )
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def filled(folder):
    with open_store(folder) as store:
        store.save_view("http://placement", ROOT, None, PlacementView(tree().freeze()))
        store.save_journal(ROOT, Journal({ROOT: Ownership(), CELL: Ownership()}))
    return folder


def test_trees_are_sorted_by_the_names_of_their_nodes(agent, filled):
    with open_store(filled) as store:
        for number, name in enumerate(("node-3", "node-0", "node-2")):
            uuid, other = f"5f9c2a34-7d1e-4a8b-9c46-00000000010{number}", ProviderTree()
            other.new_root(name, uuid)
            store.save_view("http://placement", uuid, None, PlacementView(other.freeze()))
    code, out, _ = agent("tree", "--format", "json")
    assert code == 0
    assert [node["name"] for node in json.loads(out)["nodes"]] == [
        "node-0",
        "node-1",
        "node-2",
        "node-3",
    ]
