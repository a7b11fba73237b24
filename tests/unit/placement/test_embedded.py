"""The embedded Placement that does not start: what is told is what is wrong, and only its file is
blamed for what is in its file.
"""

from pathlib import Path
from threading import Event
from typing import Any

import pytest
import requests
from alembic.util import CommandError
from oslo_config import cfg

from agent.errors import AgentError, ConfigError, PlacementUnreachable, StoreError
from agent.placement import embedded
from tests.support import backends

backends.require("placement.deploy")


def refused(folder: Path) -> AgentError:
    with pytest.raises(AgentError) as caught:
        embedded.connect_embedded(folder, Event())
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        TypeError("got an unexpected keyword argument"),
        ImportError("no name x in y"),
        RuntimeError("no such entry point"),
    ],
)
def test_an_error_of_its_libraries_does_not_blame_the_file(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from placement.db.sqlalchemy import migration

    def fails(_revision: str) -> None:
        raise error

    monkeypatch.setattr(migration, "upgrade", fails)
    told = refused(tmp_path)
    assert isinstance(told, ConfigError)
    assert str(error) in told.message
    assert "move" not in told.remedy
    assert "pip install" in told.remedy


def test_a_file_of_a_newer_version_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_connection: str, _copy: object) -> None:
        raise CommandError("Can't locate revision identified by 'ffffffffffff'")

    monkeypatch.setattr(embedded, "_application", fails)
    told = refused(tmp_path)
    assert isinstance(told, StoreError)
    assert "made by another version" in told.message
    assert "upgrade openstack-placement" in told.remedy


def test_no_other_configuration_of_the_process_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placement's groups of options are shared by all configurations of a process."""
    from placement import conf as placement_conf

    file = tmp_path / "other.conf"
    file.write_text(
        "[placement_database]\nconnection = sqlite:///x\n[api]\nauth_strategy = keystone\n"
    )

    def options() -> tuple[str, str]:
        conf = cfg.ConfigOpts()
        placement_conf.register_opts(conf)
        conf([], default_config_files=[str(file)], default_config_dirs=[])
        return conf.placement_database.connection, conf.api.auth_strategy

    assert embedded.connect_embedded(tmp_path, Event()).endpoint == embedded.ENDPOINT
    assert options() == ("sqlite:///x", "keystone")
    from placement.db.sqlalchemy import migration

    monkeypatch.setattr(migration, "upgrade", {}.__getitem__)
    assert isinstance(refused(tmp_path), ConfigError | StoreError)
    assert options() == ("sqlite:///x", "keystone")


def adapter_of(answering: Event) -> tuple[embedded.WsgiAdapter, list[str]]:
    """An adapter whose application waits for ``answering`` where it searches; and the paths."""
    paths: list[str] = []

    def application(environment: dict[str, Any], start_response: Any) -> list[bytes]:
        paths.append(environment["PATH_INFO"])
        if environment["PATH_INFO"] == "/allocation_candidates":
            answering.wait()
        start_response("200 OK", [])
        return [b"{}"]

    return embedded.WsgiAdapter(application), paths


def send(adapter: embedded.WsgiAdapter, path: str, seconds: float) -> int:
    request = requests.Request("GET", embedded.ENDPOINT + path).prepare()
    return adapter.send(request, timeout=(5, seconds)).status_code


def test_a_search_that_takes_too_long_is_abandoned_and_what_follows_does_not_wait_for_it() -> None:
    answering = Event()
    adapter, paths = adapter_of(answering)
    for path in ("/allocation_candidates?resources=VCPU:1", "/resource_providers"):
        with pytest.raises(PlacementUnreachable) as caught:
            send(adapter, path, 0.05)
        assert caught.value.kind == embedded.SLOW
        assert f"did not answer GET {path.partition('?')[0]} within 0.05 s" in caught.value.message
    assert paths == ["/allocation_candidates"]
    answering.set()
    assert send(adapter, "/resource_providers", 60) == 200
    assert send(adapter, "/allocation_candidates", 60) == 200
