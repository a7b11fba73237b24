"""The page of ``--report`` and of ``agent report``, written by audits of the example hosts."""

import os
import resource
import stat
import subprocess
import sys

import pytest

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from tests.functional.cli.setups import numa_host
from tests.support.child import CHECKOUT
from tests.support.html_page import HtmlPage
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import Service, until

FORMER = '<!DOCTYPE html><meta name="generator" content="compute-node-agent">'
PINNED = "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a12"


@pytest.fixture
def example(http_placement: HttpPlacement, tmp_path):
    """The host of etc/hosts/numa.yaml, with its network card offered."""
    return numa_host(http_placement, tmp_path)


def read(agent, name="nodes.html"):
    found = HtmlPage((agent.folder / name).read_text(encoding="utf-8"))
    assert found.faults() == []
    return found


def test_an_audit_writes_a_page_and_its_report_stays_as_it_is(agent):
    plain = agent.run("--once", "--dry-run", "--format", "json")
    with_page = agent.run("--once", "--dry-run", "--format", "json", "--report", "nodes.html")
    assert (plain.code, with_page.code) == (0, 0)
    before, after = plain.json, with_page.json
    for document in (before, after):
        del document["nodes"][0]["seconds"]
    assert before == after
    found = read(agent)
    assert "dry run, nothing was written" in found.text
    for operation in after["nodes"][0]["operations"]:
        assert operation["op"] in found.texts
        # A name that is made is told as well as a provider.
        subject = operation["provider"]
        assert (subject["name"] if subject else operation["after"]) in found.texts
    for row in after["nodes"][0]["tree"]:
        assert row["name"] in found.texts
        assert set(row["traits"]) <= set(found.texts)
    assert not agent.store.exists()


def test_a_page_says_how_many_operations_an_audit_made_and_that_none_was_needed(agent):
    made = agent.run("--once", "--format", "json", "--report", "nodes.html").json
    operations = made["nodes"][0]["operations"]
    found = read(agent)
    assert f"{len(operations)} operations" in found.texts
    # A provider is created in one line, with what it was created with.
    created = [one for one in operations if one["op"] in ("create-provider", "ensure-trait")]
    assert len(created) < len(operations)
    assert found.texts.count("before and after") == len(created)
    assert agent.run("--once", "--report", "nodes.html").code == 0
    texts = read(agent).texts
    assert "nothing to change" in texts
    # Beside it, why there is no drift.
    assert "allocations were not judged, because driver fake.numa cannot list guests" in texts


def test_the_machine_shows_who_has_which_cpu_and_device(example):
    assert example.run("--once").code == 0
    assert example.run("guests", "import").code == 0
    assert example.run("--once", "--report", "nodes.html").code == 0
    found = read(example)
    cpus = {
        given["title"].split(":")[0]: (given["class"], given["data-guests"])
        for _, given in found.elements
        if "title" in given
    }
    assert len(cpus) == 16
    assert cpus["CPU 0"] == ("cpu shared", "")
    assert cpus["CPU 11"] == ("cpu free", "")
    assert {cpus[f"CPU {cpu}"] for cpu in (2, 3, 10)} == {("cpu pinned", "1")}
    assert "0000:18:00.1" in found.texts
    assert "cell 0: 2048 MiB, 2 MiB pages, CPUs pinned (guest→host) 0→2, 1→10, emulator on 3" in (
        found.texts
    )
    assert PINNED in found.texts


def test_a_guest_shows_what_placement_has_allocated_to_it(example):
    assert example.run("--once").code == 0
    assert example.run("guests", "import").code == 0
    done = example.run(
        *("allocation", "claim", PINNED, "resources=MEMORY_MB:2048,VCPU:2"),
        *("--project-id", "p", "--user-id", "u"),
    )
    assert done.code == 0, done
    for words in (("--once", "--report", "nodes.html"), ("report", "nodes.html")):
        assert example.run(*words).code == 0
        found = read(example)
        assert "MEMORY_MB 2048, VCPU 2 of node-a" in found.texts
        holders = [
            given["data-guests"]
            for _, given in found.elements
            if "provider" in given.get("class", "").split()
        ]
        guests = [given["data-guest"] for _, given in found.elements if "data-guest" in given]
        assert holders[0] in guests
        assert set(holders[1:]) == {""}


def test_observing_shows_the_guests_too(example):
    assert example.run("--once", "--observe", "--report", "nodes.html").code == 0
    found = read(example)
    assert "audit that only observes" in found.text
    assert "instance-00000012" in found.texts
    assert not example.store.exists()


def test_report_without_a_daemon_shows_what_the_store_has(example):
    assert example.run("--once").code == 0
    assert example.run("guests", "import").code == 0
    done = example.run("report", "nodes.html")
    assert (done.code, done.stdout) == (0, "nodes.html shows 1 node as the store has it\n")
    found = read(example)
    assert {"node-a", "node-a_NUMA1", "0000:18:00.1", PINNED} <= set(found.texts)
    assert "unknown" in found.texts


def test_report_shows_what_the_daemon_knows(example):
    client, service = ApiClient(example.socket), Service(example)

    def is_audited():
        try:
            return list(client.nodes())
        except (ApiProblem, ApiUnreachable):
            return []

    with service.running():
        until(is_audited, lambda: service)
        done = example.run("report", "nodes.html")
        assert (done.code, done.stdout) == (0, "nodes.html shows 1 node as the daemon has it\n")
        found = read(example)
        assert {"unknown-domain", "instance-00000012"} <= set(found.texts)
        titles = [given["title"] for _, given in found.elements if "title" in given]
        assert len(titles) == 16
        assert service.stop()[0] == 0


def test_report_names_nodes_as_other_commands_do(example):
    assert example.run("--once").code == 0
    answer = example.run("report", "--node", "other", "nodes.html")
    assert answer.code == 1
    assert "--node other: the store has no such node" in answer.stderr
    document = example.run("report", "--node", "node-*", "--format", "json", "nodes.html").json
    assert (document["source"], document["nodes"]) == ("store", 1)


@pytest.mark.parametrize("words", [("--once", "--dry-run", "--report"), ("report",)])
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_done(agent, words):
    for file, why in ((".", "it is a folder"), ("nowhere/nodes.html", "there is no folder")):
        done = agent.run(*words, file)
        assert (done.code, done.stdout) == (1, "")
        assert why in done.stderr
    assert not agent.store.exists()


def test_an_audit_is_reported_also_if_its_page_cannot_be_written_then(agent):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As on a full disk: the file is there, and its contents find no room.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        done = agent.run("--once", "--dry-run", "--format", "json", "--report", "nodes.html")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (node,), (error,) = done.json["nodes"], done.json["errors"]
    assert (done.code, node["state"]) == (3, "pending")
    assert node["operations"]
    assert "nodes.html cannot be written" in error["message"]
    assert {path.name for path in agent.folder.iterdir()} == {"agent.conf"}


def test_a_page_replaces_the_last_one_and_leaves_nothing_else(agent):
    (agent.folder / "nodes.html").write_text(FORMER)
    assert agent.run("--once", "--dry-run", "--report", "nodes.html").code == 0
    read(agent)
    assert {path.name for path in agent.folder.iterdir()} == {"agent.conf", "nodes.html"}


def test_a_device_or_a_pipe_is_not_replaced_by_a_page(agent):
    pipe, link = agent.folder / "pipe", agent.folder / "null"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    for path in (pipe, link):
        result = agent.run("--once", "--dry-run", "--report", str(path))
        assert (result.code, "it is no regular file" in result.stderr) == (1, True)
    assert pipe.is_fifo()
    assert link.is_symlink()


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_new_page_is_for_its_owner_alone_whatever_the_umask(agent, umask):
    before = os.umask(umask)
    try:
        assert agent.run("--once", "--dry-run", "--report", "new.html").code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((agent.folder / "new.html").stat().st_mode) == 0o600


def test_a_page_goes_where_a_link_leads_with_the_rights_of_any_new_file(agent):
    pages = agent.folder / "pages"
    pages.mkdir()
    (pages / "page.html").write_text(FORMER)
    (agent.folder / "link.html").symlink_to(pages / "page.html")
    assert agent.run("--once", "--dry-run", "--report", "link.html").code == 0
    assert (agent.folder / "link.html").is_symlink()
    assert (pages / "page.html").read_text() != FORMER
    other = pages / "other"
    other.touch()
    assert (pages / "page.html").stat().st_mode == other.stat().st_mode
    assert {file.name for file in pages.iterdir()} == {"page.html", "other"}


@pytest.mark.parametrize("words", [("--once", "--dry-run", "--report"), ("report",)])
def test_a_file_with_something_else_is_not_replaced_by_a_page(agent, words):
    assert agent.run("--once").code == 0
    store = agent.store / "database/store.sqlite"
    notes = agent.folder / "notes.html"
    notes.write_text("<!DOCTYPE html>mine")
    before = notes.read_bytes(), store.read_bytes()
    for file in (notes, store):
        done = agent.run(*words, str(file))
        assert (done.code, "something else than a page" in done.stderr) == (1, True)
    assert (notes.read_bytes(), store.read_bytes()) == before


@pytest.mark.parametrize("there", ["keep me", ""])
@pytest.mark.parametrize("name", ["/dev/stderr", "/proc/self/fd/2", "link.html"])
def test_the_file_that_the_output_goes_to_is_not_replaced(agent, name, there):
    log = agent.folder / "agent.log"
    log.write_text(there)
    (agent.folder / "link.html").symlink_to("/dev/stderr")
    command = [sys.executable, "-m", "agent", "--config-file", str(agent.config_file), "report"]
    with log.open("a") as opened:
        done = subprocess.run(
            [*command, "--offline", name],
            stderr=opened,
            check=False,
            cwd=agent.folder,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )
    assert done.returncode == 1
    assert log.read_text().startswith(there)
    assert "it is no regular file" in log.read_text()


def test_names_that_no_file_can_have_are_refused(agent):
    (agent.folder / "loop").symlink_to("loop")
    for name, why in (
        ("a" * 300, "File name too long"),
        ("loop", "Too many levels of symbolic links"),
        ("new/", "it is a folder"),
        ("-", "a page is written into a file"),
        ("", "a page is written into a file"),
    ):
        done = agent.run("--once", "--dry-run", "--report", name)
        assert (done.code, why in done.stderr, "Traceback" in done.stderr) == (1, True, False), done


def test_a_page_keeps_the_rights_of_the_one_before(agent):
    page = agent.folder / "nodes.html"
    page.touch()
    page.chmod(0o600)
    # Only root can give a file away.
    owner = (12, 34) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(page, *owner)
    assert agent.run("--once", "--dry-run", "--report", "nodes.html").code == 0
    assert page.stat().st_size > 1000
    status = page.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o600, *owner)
