"""Placement on MariaDB, where most clouds have it: names that differ in case only are one name."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.setups import on
from tests.support import backends
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import until
from tests.support.system import AgentHere

# ---
# A real MariaDB: a private server in a folder of its own, on a Unix socket only, gone when the tests
# are gone.


PROGRAMS = ("mariadb-install-db", "mariadbd", "mariadb")
PR_SET_PDEATHSIG = 1


class MariaDB:
    """A server with an empty database for Placement."""

    def __init__(self) -> None:
        path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
        install, serve, self._client = (self._program(name, path) for name in PROGRAMS)
        # Not below pytest's own folder, because that one is too long for a socket's name.
        self._folder = Path(tempfile.mkdtemp(prefix="cnag-my-"))
        (self._folder / "tmp").mkdir()
        places = [
            "--no-defaults",
            f"--datadir={self._folder / 'data'}",
            f"--tmpdir={self._folder / 'tmp'}",
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]
        made = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        subprocess.run([install, *places, *made], capture_output=True, check=True)
        # A crash of the machine is none of the tests' business.
        alone = ["--skip-networking", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0"]
        # A test run that is killed takes its server along.
        kernel = ctypes.CDLL(None)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    serve,
                    *places,
                    *alone,
                    f"--socket={self._socket}",
                    f"--pid-file={self._socket}.pid",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        until(lambda: self._runs("CREATE DATABASE placement"), self._log.read_text)

    @staticmethod
    def _program(name: str, path: str) -> str:
        found = shutil.which(name, path=path)
        if found is None:
            backends.missing("MariaDB", "apt-get install mariadb-server", f"there is no {name}")
        return found

    @property
    def _socket(self) -> Path:
        return self._folder / "socket"

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    @property
    def url(self) -> str:
        """The URL of the database, as for ``[placement_database] connection``."""
        return f"mysql+pymysql://root@localhost/placement?unix_socket={self._socket}"

    def _runs(self, statement: str) -> bool:
        command = [self._client, "--no-defaults", "--user=root", f"--socket={self._socket}"]
        done = subprocess.run([*command, "-e", statement], capture_output=True, check=False)
        return done.returncode == 0

    def remove(self) -> None:
        """End it for good."""
        self._process.kill()
        self._process.wait(60)
        shutil.rmtree(self._folder)


# Because each process of pytest would start a server.
pytestmark = pytest.mark.xdist_group("mariadb")

GUEST = "7f0c44c1-3f0a-4a68-9a4d-6f6a6e1b2d11"


@pytest.fixture(scope="module")
def on_mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpPlacement]:
    """Each test has names of its own."""
    backends.require("placement.deploy", "waitress", "pymysql")
    database = MariaDB()
    server = HttpPlacement(tmp_path_factory.mktemp("placement"), connection=database.url)
    server.start()
    yield server
    server.stop()
    database.remove()


def called(agent: AgentHere, placement: HttpPlacement, host: str) -> None:
    agent.configure(on(placement, "fake.numa", {"DEFAULT": {"host": host}}))


def run(agent: AgentHere, *words: str) -> dict[str, Any]:
    (node,) = agent.run(*(words or ("--once",)), "--format", "json").json["nodes"]
    return dict(node)


def problem(node: dict[str, Any], code: str) -> dict[str, str]:
    (error,) = node["errors"]
    assert error["code"] == code
    return dict(error)


def carry_out(agent: AgentHere, remedy: str, command: str) -> None:
    found = re.search(f"agent ({command})", remedy)
    assert found is not None, remedy
    done = agent.run(*found[1].split())
    assert done.code == 0, done


def names(placement: HttpPlacement, root: str) -> dict[str, str]:
    return {row["uuid"]: row["name"] for row in placement.other.tree(root)}


def test_a_holder_of_the_name_in_capitals_is_told_once_and_taken_over_with_what_is_told(
    on_mariadb: HttpPlacement, tmp_path: Path
) -> None:
    holder = on_mariadb.other.create_provider("ALPHA")
    on_mariadb.other.set_inventory(holder, {"DISK_GB": 10})
    on_mariadb.other.claim({holder: {"DISK_GB": 1}}, GUEST)
    agent = AgentHere(tmp_path / "agent")
    called(agent, on_mariadb, "alpha")
    for words in (["--once", "--dry-run"], ["--once"], ["--once"]):
        on_mariadb.clear()
        node = run(agent, *words)
        told = problem(node, "placement.name-conflict")
        assert f"held by provider {holder}, called 'ALPHA', in Placement" in told["message"]
        assert "consumers with allocations on it: 1" in told["message"]
        assert (node["attempts"], len(on_mariadb.requests) <= 10) == (1, True)
    assert names(on_mariadb, holder) == {holder: "ALPHA"}
    carry_out(agent, told["remedy"], f"identity set {holder}")
    renamed = problem(run(agent), "placement.identity-conflict")
    carry_out(agent, renamed["remedy"], "identity rename")
    taken = run(agent, "--once", "--adopt")
    assert (taken["uuid"], taken["errors"]) == (holder, [])
    assert run(agent)["state"] == "in-sync"
    assert names(on_mariadb, holder) == {holder: "alpha"}
    assert on_mariadb.other.allocations(GUEST)["allocations"][holder]["resources"] == {"DISK_GB": 1}


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_host_whose_name_changes_in_case_only_is_renamed_with_its_children(
    on_mariadb: HttpPlacement, tmp_path: Path, *, by_hand: bool
) -> None:
    agent, name = AgentHere(tmp_path / "agent"), f"beta{by_hand}".lower()
    called(agent, on_mariadb, name if by_hand else name.upper())
    node = run(agent)
    before = names(on_mariadb, node["uuid"])
    if by_hand:
        for provider, present in before.items():
            on_mariadb.other.rename(provider, present.upper())
    called(agent, on_mariadb, name)
    told = problem(run(agent), "placement.identity-conflict")
    assert run(agent, "identity", "rename", "--dry-run")["errors"] == []
    carry_out(agent, told["remedy"], "identity rename")
    assert names(on_mariadb, node["uuid"]) == {
        uuid: present.replace(name.upper(), name) for uuid, present in before.items()
    }
    assert run(agent)["state"] == "in-sync"


def test_a_child_whose_name_somebody_has_in_capitals_is_told_and_made_once_that_one_is_gone(
    on_mariadb: HttpPlacement, tmp_path: Path
) -> None:
    holder = on_mariadb.other.create_provider("GAMMA_numa0")
    agent = AgentHere(tmp_path / "agent")
    called(agent, on_mariadb, "gamma")
    for words in (["--once"], ["--once", "--dry-run"], ["--once"]):
        on_mariadb.clear()
        node = run(agent, *words)
        told = problem(node, "placement.name-conflict")
        assert f"held by provider {holder}, called 'GAMMA_numa0', in Placement" in told["message"]
        assert (node["attempts"], len(on_mariadb.requests) <= 20) == (1, True)
    assert set(names(on_mariadb, holder).values()) == {"GAMMA_numa0"}
    assert told["remedy"].startswith("rename it, ")
    on_mariadb.other.rename(holder, "theirs")
    assert run(agent)["errors"] == []
    assert run(agent)["state"] == "in-sync"


def test_a_name_that_somebody_has_in_capitals_is_told_before_a_rename(
    on_mariadb: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentHere(tmp_path / "agent")
    called(agent, on_mariadb, "delta")
    node = run(agent)
    holder = on_mariadb.other.create_provider("EPSILON")
    called(agent, on_mariadb, "epsilon")
    before = names(on_mariadb, node["uuid"])
    for words in (["identity", "rename", "--dry-run"], ["identity", "rename"]):
        told = problem(run(agent, *words), "placement.name-conflict")
        assert f"{holder}, called 'EPSILON', in Placement" in told["message"]
        assert names(on_mariadb, node["uuid"]) == before
    on_mariadb.other.delete_provider(holder)
    assert run(agent, "identity", "rename")["errors"] == []
