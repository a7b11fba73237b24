"""What others on the host may read or write of the agent's is told, and a link in the lock's place
is not followed.
"""

import os

import pytest

from tests.functional.test_daemon_claims import Host
from tests.support.system import AgentHere


@pytest.fixture
def command(tmp_path):
    return AgentHere(
        tmp_path / "agent",
        {
            "DEFAULT": {"compute_driver": "fake", "host": "node-a", "state_path": "/nonexistent"},
            "placement": {
                "auth_type": "password",
                "auth_url": "http://127.0.0.1:1/",
                "username": "u",
                "password": "p4ss",
                "project_name": "p",
            },
        },
    )


def warnings(command):
    return command.run("config", "check", "--format", "json").json["warnings"]


def test_a_configuration_with_a_password_that_everybody_may_read_is_told(command):
    command.store.mkdir(mode=0o700)
    assert warnings(command) == []
    command.config_file.chmod(0o644)
    (line,) = warnings(command)
    assert "[placement] password" in line
    assert "p4ss" not in line
    assert f"chmod o-r {command.config_file}" in line


def test_switches_and_names_of_secrets_are_called_no_secrets(command):
    config = {
        "service_user": {"send_service_user_token": "true"},
        "libvirt": {
            "inject_password": "False",
            "rbd_secret_uuid": "0d4f1d6a-5e0d-4a5e-9c4e-6f9b3a0f7f1c",
            "supported_tpm_secret_security": "user,host",
        },
    }
    command.configure({**config, "key_manager": {"fixed_key": "a-key"}})
    command.config_file.chmod(0o644)
    (told,) = [line for line in warnings(command) if "can be read by everybody" in line]
    assert "holds [key_manager] fixed_key: chmod o-r" in told
    command.configure(config)
    command.config_file.chmod(0o644)
    assert "can be read by everybody" not in str(warnings(command))


@pytest.mark.parametrize(
    "url", ["http://t0ken@127.0.0.1:1/", "http://u@example.org:p4ss@127.0.0.1:1/"]
)
def test_a_configuration_with_a_secret_in_a_url_that_everybody_may_read_is_told(command, url):
    command.store.mkdir(mode=0o700)
    text = command.config_file.read_text()
    command.config_file.write_text(text.replace("password = p4ss", f"endpoint_override = {url}"))
    command.config_file.chmod(0o644)
    (line,) = warnings(command)
    assert line.startswith(
        f"{command.config_file} can be read by everybody, and holds [placement] endpoint_override: "
    )


@pytest.mark.parametrize(("mode", "who"), [(0o777, "others"), (0o770, "others"), (0o755, None)])
def test_a_folder_of_the_store_that_others_may_write_is_told(command, mode, who):
    command.store.mkdir()
    command.store.chmod(mode)
    assert len(warnings(command)) == (who is not None)
    assert all(str(command.store) in one for one in warnings(command))


def test_a_folder_above_the_store_that_everybody_may_write_is_told(command):
    command.folder.chmod(0o777)
    assert [str(command.folder) in one for one in warnings(command)] == [True]
    # As /tmp is.
    command.folder.chmod(0o1777)
    assert warnings(command) == []


def test_the_daemon_tells_it_when_it_starts(http_placement, tmp_path):
    host = Host(tmp_path / "agent", http_placement.url)
    host.command.config_file.chmod(0o644)
    host.command.store.mkdir()
    host.command.store.chmod(0o777)
    with host.service.running() as service:
        host.answers(host.client.health)
        service.logged("can be written by others")
        told = [line for line in service.log.splitlines() if " WARNING " in line]
    assert any("[placement] token" in line for line in told)
    assert any("can be written by others" in line for line in told)


def link(lock, victim):
    lock.symlink_to(victim)


def hard_link(lock, victim):
    lock.hardlink_to(victim)


def pipe(lock, _victim):
    os.mkfifo(lock)


def dangling(lock, victim):
    lock.symlink_to(victim.with_name("made-by-the-agent"))


@pytest.mark.parametrize("make", [link, hard_link, pipe, dangling], ids=lambda make: make.__name__)
def test_what_a_link_in_the_locks_place_leads_to_is_not_emptied(command, tmp_path, make):
    victim = tmp_path / "victim"
    victim.write_text("not the agent's")
    command.store.mkdir(mode=0o700)
    make(command.store / "lock", victim)
    before = sorted(tmp_path.iterdir())
    result = command.run("db", "upgrade")
    assert result.code == 1
    assert f"{command.store / 'lock'} is a link or no file" in result.stderr
    assert victim.read_text() == "not the agent's"
    assert sorted(tmp_path.iterdir()) == before
