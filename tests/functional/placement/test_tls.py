"""TLS to Placement: what is wrong is told by its reason, with the remedy that ends it; files of
certificates are looked at before they are used.
"""

import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import requests
from oslo_config import cfg

from agent.cli.command import Options, Source
from agent.cli.configuration import load
from agent.errors import ConfigErrors, PlacementUnreachable
from agent.http.session import tls_remedy
from agent.placement.client import PlacementClient
from agent.placement.exchange import Exchange
from agent.placement.transport import connect_http
from tests.functional.placement.certificates import Authority

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\nConnection: close\r\n\r\n{"usages": {}}'
NGINX = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
UUID = "5f9c2a34-7d1e-4a8b-9c46-000000000001"


class TlsServer:
    """Answers every request alike; without a context it does not speak TLS, or says
    nothing at all.
    """

    def __init__(self, context: ssl.SSLContext | None, *, silent: bool = False) -> None:
        self._context, self._silent, self._stopped = context, silent, Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            with suppress(OSError):
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError), closing(client):
            if self._silent:
                client.recv(10)
                return
            with closing(
                self._context.wrap_socket(client, server_side=True) if self._context else client
            ) as wrapped:
                wrapped.recv(65536)
                wrapped.sendall(self.answer(wrapped))

    @staticmethod
    def answer(_client: Any) -> bytes:
        return ANSWER

    def close(self) -> None:
        self._stopped.set()
        self._listener.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def configured(tmp_path: Path, url: str, **options: object) -> cfg.ConfigOpts:
    lines = {
        "auth_type": "admin_token",
        "endpoint": url,
        "token": "secret-token",
        "endpoint_override": url,
        "read_timeout": 20,
        **options,
    }
    file = tmp_path / "agent.conf"
    file.write_text(
        "[placement]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())
    )
    return load(Options(("config", "check"), sources=(Source(file),)), {})


def asked(conf: cfg.ConfigOpts) -> object:
    return PlacementClient(Exchange(connect_http(conf, Event()), "req-test")).usages(UUID)


CASES = {
    # name: (address in the certificate, days that it holds, further options of the agent, kind,
    # words of the message, words of the remedy)
    "good": ("127.0.0.1", 30, {}, None, "", ""),
    "expired": ("127.0.0.1", -3, {}, "tls", "expired", "renewed"),
    "wrong name": ("127.0.0.2", 30, {}, "tls", "127.0.0.1", "a name that its certificate has"),
    "unknown issuer": ("127.0.0.1", 30, {"cafile": "stranger.pem"}, "tls", "certificate", "cafile"),
}


@pytest.fixture
def servers() -> Iterator[list[TlsServer]]:
    made: list[TlsServer] = []
    yield made
    for one in made:
        one.close()


@pytest.mark.parametrize("case", CASES)
def test_the_reason_of_tls_decides_the_remedy(
    case: str, tmp_path: Path, authority: Authority, servers: list[TlsServer]
) -> None:
    address, days, options, kind, what, remedy = CASES[case]
    Authority(tmp_path, "stranger")
    pair = authority.pair("server", address=address, days=days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    servers.append(TlsServer(context))
    cafile = tmp_path / str(options.get("cafile", authority.bundle.name))
    conf = configured(tmp_path, servers[0].url, cafile=cafile)
    if kind is None:
        assert asked(conf) == {}
        return
    with pytest.raises(PlacementUnreachable) as failed:
        asked(conf)
    assert failed.value.kind == kind
    assert what in failed.value.message
    assert remedy in failed.value.remedy


def test_the_authorities_and_proxies_of_the_environment_are_read_once_and_hold_for_each_request(
    tmp_path: Path,
    authority: Authority,
    servers: list[TlsServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = authority.pair("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    servers.append(TlsServer(context))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.bundle))
    client = PlacementClient(
        Exchange(connect_http(configured(tmp_path, servers[0].url), Event()), "req-test")
    )
    assert client.usages(UUID) == {}
    read = []
    monkeypatch.setattr(requests.utils, "getproxies", lambda: read.append("proxies") or {})
    assert [client.usages(UUID) for _ in range(3)] == [{}] * 3
    assert read == []


def test_a_certificate_that_only_newer_pythons_refuse_has_a_remedy_of_its_own(
    tmp_path: Path, authority: Authority, servers: list[TlsServer]
) -> None:
    pair = authority.pair("server", names_issuer=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    servers.append(TlsServer(context))
    conf = configured(tmp_path, servers[0].url, cafile=authority.bundle)
    if sys.version_info < (3, 13):
        assert asked(conf) == {}
        return
    with pytest.raises(PlacementUnreachable) as failed:
        asked(conf)
    assert "Missing Authority Key Identifier" in failed.value.message
    assert "RFC 5280" in failed.value.remedy


def test_every_fault_that_strict_checks_find_has_the_same_remedy() -> None:
    error = ssl.SSLCertVerificationError()
    for code in range(80, 94):
        error.verify_code = code
        assert "RFC 5280" in tls_remedy(iter([error]), "placement")


class AsNginx(TlsServer):
    """Takes a client without a certificate, and refuses its request as nginx does."""

    @staticmethod
    def answer(client: ssl.SSLSocket) -> bytes:
        return ANSWER if client.getpeercert() else NGINX


@pytest.mark.parametrize("way", ["TLS 1.2", "TLS 1.3", "nginx"])
def test_a_server_that_wants_a_clients_certificate_is_told_as_such(
    way: str, tmp_path: Path, authority: Authority, servers: list[TlsServer]
) -> None:
    pair, own = authority.pair("server"), authority.pair("agent")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if way == "TLS 1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(pair.certificate, pair.key)
    context.load_verify_locations(authority.bundle)
    context.verify_mode = ssl.CERT_OPTIONAL if way == "nginx" else ssl.CERT_REQUIRED
    servers.append((AsNginx if way == "nginx" else TlsServer)(context))
    with pytest.raises(PlacementUnreachable) as failed:
        asked(configured(tmp_path, servers[0].url, cafile=authority.bundle))
    assert "certfile and keyfile" in failed.value.remedy
    assert (
        asked(
            configured(
                tmp_path,
                servers[0].url,
                cafile=authority.bundle,
                certfile=own.certificate,
                keyfile=own.key,
            )
        )
        == {}
    )


@pytest.mark.parametrize("silent", [True, False])
def test_a_server_that_does_not_speak_tls_is_told_as_such(
    silent: bool, tmp_path: Path, authority: Authority, servers: list[TlsServer]
) -> None:
    servers.append(TlsServer(None, silent=silent))
    with pytest.raises(PlacementUnreachable) as failed:
        asked(configured(tmp_path, servers[0].url, cafile=authority.bundle))
    assert "cafile" not in failed.value.remedy


def test_files_of_certificates_that_cannot_be_used_are_all_told_at_once(
    tmp_path: Path, authority: Authority
) -> None:
    conf = configured(
        tmp_path,
        "https://127.0.0.1:1",
        cafile=tmp_path / "gone.pem",
        certfile=tmp_path / "gone.crt",
        keyfile=tmp_path / "gone.key",
    )
    with pytest.raises(ConfigErrors) as failed:
        connect_http(conf, Event())
    assert [one.message.split(" = ")[0] for one in failed.value.errors] == [
        "[placement] cafile",
        "[placement] certfile",
        "[placement] keyfile",
    ]
    one, other = authority.pair("one"), authority.pair("other")
    (tmp_path / "text.pem").write_text("no certificate")
    conf = configured(
        tmp_path,
        "https://127.0.0.1:1",
        cafile=tmp_path / "text.pem",
        certfile=one.certificate,
        keyfile=other.key,
    )
    with pytest.raises(ConfigErrors) as failed:
        connect_http(conf, Event())
    assert ["no certificate can be read" in one.message for one in failed.value.errors] == [
        True,
        False,
    ]
    assert "the key is not that of the certificate" in failed.value.errors[1].message


HARMS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a bundle that is text": ("cafile", lambda file: file.write_text("no")),
    "half a bundle": ("cafile", lambda file: file.write_text(file.read_text()[:200])),
    "a bundle that leads to itself": (
        "cafile",
        lambda file: (file.unlink(), file.symlink_to(file)),
    ),
    "no certificate": ("certfile", lambda file: file.unlink()),
    "a certificate that is a folder": ("certfile", lambda file: (file.unlink(), file.mkdir())),
    "no key": ("keyfile", lambda file: file.unlink()),
    "a key that is text": ("keyfile", lambda file: file.write_text("no")),
}


@pytest.mark.parametrize("harm", HARMS)
def test_files_that_are_changed_while_the_agent_runs_are_named(
    harm: str, tmp_path: Path, authority: Authority, servers: list[TlsServer]
) -> None:
    pair, own = authority.pair("server"), authority.pair("agent")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    servers.append(TlsServer(context))
    files = {"cafile": authority.bundle, "certfile": own.certificate, "keyfile": own.key}
    transport = connect_http(configured(tmp_path, servers[0].url, **files), Event())
    option, change = HARMS[harm]
    change(files[option])
    with pytest.raises(PlacementUnreachable) as failed:
        PlacementClient(Exchange(transport, "req-test")).usages(UUID)
    assert failed.value.kind == "tls"
    assert not failed.value.outcome_unknown
    assert f"{option} = {files[option]}" in failed.value.message
    assert "PEM form" in failed.value.remedy


def test_a_bundle_that_goes_away_while_the_agent_runs_is_no_bug_of_the_agents(
    tmp_path: Path, authority: Authority, servers: list[TlsServer]
) -> None:
    pair = authority.pair("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    servers.append(TlsServer(context))
    transport = connect_http(configured(tmp_path, servers[0].url, cafile=authority.bundle), Event())
    authority.bundle.unlink()
    with pytest.raises(PlacementUnreachable) as failed:
        PlacementClient(Exchange(transport, "req-test")).usages(UUID)
    assert failed.value.kind == "tls"
    assert "cafile" in failed.value.remedy
