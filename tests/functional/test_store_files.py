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
    return sorted(one.name for one in host.command.store.iterdir() if ".orphan-" in one.name)


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


def test_the_log_of_a_store_that_was_moved_away_is_not_replayed_into_the_new_one(host):
    killed_with_claims(host, "i1", "i2")
    store_file(host).rename(store_file(host).with_name("moved-away"))
    with host.service.running() as service:
        host.answers(host.client.health)
        host.answers(lambda: host.claim("i3"))
        assert claimed(host) == {guest("i3")}
        host.answers(lambda: list(host.client.nodes()))
        assert host.answers(lambda: host.records)["usage"]["memory_mb_used"] == 512 + 2048
        until(lambda: "belongs to another file" in service.log, lambda: service)
        service.stop()
    assert_sound(host)
    # The old store and its log still make one whole.
    (log,) = [one for one in set_aside(host) if one.endswith("-wal")]
    before = host.command.store / log.removesuffix("-wal")
    store_file(host).with_name("moved-away").rename(before)
    with closing(sqlite3.connect(before)) as connection:
        assert connection.execute("SELECT count(*) FROM claim").fetchone() == (2,)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("over", [True, False], ids=["over the file", "as a new file"])
def test_the_log_of_a_crash_is_not_replayed_into_a_copy_that_was_put_back(host, tmp_path, over):
    with host.service.running() as service:
        host.answers(host.client.readiness)
        host.claim("i1")
        service.stop()
    shutil.copyfile(store_file(host), tmp_path / "copy")
    killed_with_claims(host, "i2", "i3")
    if not over:
        store_file(host).unlink()
    shutil.copyfile(tmp_path / "copy", store_file(host))
    with host.service.running() as service:
        host.answers(host.client.readiness)
        assert claimed(host) == {guest("i1")}
        assert host.records["usage"]["memory_mb_used"] == 512 + 2048
        host.claim("i4")
        service.stop()
    assert_sound(host)
    assert any(one.endswith("-wal") for one in set_aside(host))


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


def overwritten(host, tmp_path):
    backup = tmp_path / "backup.sqlite"
    assert host.command.run("db", "backup", str(backup)).code == 0
    shutil.copyfile(backup, store_file(host))


def removed(host, tmp_path):
    store_file(host).rename(tmp_path / "moved-away")


def without_log(host, _tmp_path):
    store_file(host).with_name("store.sqlite-wal").unlink()


@pytest.mark.parametrize(
    "harm", [replaced, overwritten, removed, without_log], ids=lambda harm: harm.__name__
)
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
