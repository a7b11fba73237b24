"""The store's files under a real daemon: moved, restored, replaced and removed, before a start and
while it runs.
"""

import resource
import shutil
import sqlite3
from contextlib import closing

import pytest

from agent.api.client import ApiProblem
from tests.functional.test_daemon_claims import Host
from tests.support.service_manager import until
from tests.support.tracking import guest

pytestmark = pytest.mark.long


@pytest.fixture
def host(http_placement, tmp_path):
    return Host(tmp_path / "agent", http_placement.url)


def store_file(host):
    return host.command.store / "database/store.sqlite"


def set_aside(host):
    return [one for one in (host.command.store / "database").iterdir() if ".orphan-" in one.name]


def assert_sound(host):
    with closing(sqlite3.connect(store_file(host))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def claimed(host):
    return {one["instance"] for one in host.client.claims()}


def killed_with_claims(host, *names):
    """A daemon that has made these claims and was killed, so that they are only in its write-ahead
    log.
    """
    with host.service.running() as service:
        host.answers(host.client.readiness)
        for name in names:
            host.answers(lambda name=name: host.claim(name))
        service.kill()
    assert store_file(host).with_name("store.sqlite-wal").stat().st_size > 0


def test_the_log_of_a_database_that_was_moved_away_is_set_aside_and_both_are_whole_together(host):
    killed_with_claims(host, "i1", "i2")
    store_file(host).rename(host.command.store / "moved-away")
    with host.service.running() as service:
        host.answers(host.client.health)
        host.answers(lambda: host.claim("i3"))
        assert claimed(host) == {guest("i3")}
        host.answers(lambda: list(host.client.nodes()))
        assert host.answers(lambda: host.records)["usage"]["memory_mb_used"] == 512 + 2048
        until(lambda: "is gone and its log is not" in service.log, lambda: service)
        service.stop()
    assert_sound(host)
    # The message says how to see what was there; a restore brings it back.
    (aside,) = set_aside(host)
    (host.command.store / "moved-away").rename(aside / "store.sqlite")
    assert host.command.run("db", "restore", str(aside / "store.sqlite")).code == 0
    with host.service.running() as service:
        host.answers(host.client.health)
        assert host.answers(lambda: claimed(host)) == {guest("i1"), guest("i2")}
        service.stop()
    assert_sound(host)


def test_what_a_crash_left_in_the_log_is_there_after_it(host):
    killed_with_claims(host, "i1")
    killed_with_claims(host, "i2")
    with host.service.running():
        host.answers(host.client.readiness)
        assert claimed(host) == {guest("i1"), guest("i2")}
    assert set_aside(host) == []


def test_a_backup_of_a_running_daemon_is_restored_with_all_that_was_claimed_before_it(
    host, tmp_path
):
    backup = tmp_path / "backup.sqlite"
    with host.service.running() as service:
        host.answers(host.client.readiness)
        host.claim("i1")
        made = host.command.run("db", "backup", str(backup))
        assert (made.code, made.stderr) == (0, ""), made
        host.claim("i2")
        refused = host.command.run("db", "restore", str(backup))
        assert refused.code == 1
        assert "in use by another run" in refused.stderr
        service.kill()
    restored = host.command.run("db", "restore", str(backup))
    assert (restored.code, restored.stderr) == (0, ""), restored
    with host.service.running() as service:
        host.answers(host.client.readiness)
        assert claimed(host) == {guest("i1")}
        service.stop()
    assert_sound(host)


def replaced(host, tmp_path):
    backup = tmp_path / "backup.sqlite"
    assert host.command.run("db", "backup", str(backup)).code == 0
    store_file(host).rename(tmp_path / "moved-away")
    shutil.copyfile(backup, store_file(host))


def removed(host, tmp_path):
    store_file(host).rename(tmp_path / "moved-away")


@pytest.mark.parametrize("harm", [replaced, removed], ids=lambda harm: harm.__name__)
def test_nothing_is_acknowledged_that_is_not_in_the_file_at_the_path(host, tmp_path, harm):
    host.config["DEFAULT"]["update_resources_interval"] = 1
    host.command.configure(host.config)
    with host.service.running() as service:
        host.answers(host.client.readiness)
        host.claim("i1")
        harm(host, tmp_path)
        with pytest.raises(ApiProblem) as caught:
            host.claim("i2")
        assert (caught.value.status, caught.value.code) == (503, "store.unusable")
        assert "while the agent runs" in caught.value.message
        until(
            lambda: [one["state"] for one in host.client.nodes()] == ["degraded"], lambda: service
        )
        with pytest.raises(ApiProblem) as caught:
            host.client.readiness()
        assert "while the agent runs" in str(caught.value.problem["reasons"])
        service.stop()
    with host.service.running() as service:
        host.answers(host.client.health)
        host.answers(lambda: host.claim("i3"))
        assert claimed(host) - {guest("i1")} == {guest("i3")}
        service.stop()
    assert_sound(host)


def test_a_disk_that_takes_nothing_makes_the_agent_unready_though_nothing_is_to_be_written(host):
    host.config["DEFAULT"]["update_resources_interval"] = 1
    host.command.configure(host.config)
    with host.service.running() as service:
        host.answers(host.client.readiness)
        until(lambda: [one["state"] for one in host.client.nodes()] == ["in-sync"], lambda: service)
        before = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        until(
            lambda: [one["state"] for one in host.client.nodes()] == ["degraded"], lambda: service
        )
        with pytest.raises(ApiProblem) as caught:
            host.client.readiness()
        assert caught.value.status == 503
        assert "cannot be written" in str(caught.value.problem["reasons"])
        assert "make room" in next(iter(host.client.nodes()))["errors"][0]["remedy"]
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, before)
        host.answers(host.client.readiness)
        host.claim("i1")
