"""What the identity service has to do with it, with a real keystone."""

import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.access import AccessInfo
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from agent.cli.commands import audit
from agent.placement import transport
from agent.placement.transport import OutageLog
from tests.functional.placement.certificates import Authority
from tests.functional.placement.conftest import Host
from tests.support import faults
from tests.support.agent import NAME, AgentUnderTest, shaped, total
from tests.support.http_placement import HttpPlacement
from tests.support.keystone import AGENT, NO_ROLE, PASSWORD, PROJECT, Keystone
from tests.support.proxy import FaultProxy
from tests.support.service_manager import Service, until
from tests.support.settled import clean, node, settled
from tests.support.system import AgentCommand, AgentHere

HAS = {"VCPU": total(16), "MEMORY_MB": total(16384)}
NO_ENDPOINT = "no placement endpoint for region any, interface any in the service catalog"

pytestmark = pytest.mark.usefixtures("short_waits")


class Counting(v3.Password):
    """Authentication by password that counts the tokens it was given."""

    tokens = 0

    def get_auth_ref(self, session: Session, **options: Any) -> AccessInfo:
        self.tokens += 1
        return super().get_auth_ref(session, **options)


class Clock:
    """The monotonic time of the transport, as the test says."""

    now = 10_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(transport, "time", clock)
    return clock


@pytest.fixture
def auth(keystone: Keystone) -> Counting:
    options: dict[str, Any] = {
        name: value for name, value in keystone.credentials().items() if name != "auth_type"
    }
    return Counting(**options)


@pytest.fixture
def agent(
    host: Host, auth: Counting, clock: Clock, keystone_placement: HttpPlacement
) -> AgentUnderTest:
    """A host that finds Placement in keystone's catalog, just synchronised."""
    agent = host(
        shaped(HAS), placement=keystone_placement, session=Session(auth=auth), read_timeout=300
    )
    assert agent.cycle(start=True).state == "changed"
    keystone_placement.clear()
    auth.tokens = 0
    return agent


def told(log: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What an operator sees, libraries included."""
    ours = ("agent", "keystoneauth")
    return [
        (one.levelname, one.getMessage())
        for one in log.records
        if one.levelno > logging.DEBUG and one.name.partition(".")[0] in ours
    ]


def lost(agent: AgentUnderTest) -> str:
    """The message of a period that could not reach Placement at all."""
    report = agent.period()
    problems = [*report.errors, *(problem for one in report.nodes for problem in one.errors)]
    assert [one.code for one in problems] == ["placement.unreachable"]
    return problems[0].message


def test_an_endpoint_that_the_catalog_lacks_is_found_without_a_restart_once_it_is_there(
    agent: AgentUnderTest,
    auth: Counting,
    clock: Clock,
    keystone: Keystone,
    keystone_placement: HttpPlacement,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    keystone.unregister_placement()
    # The next token brings the catalog as it is now.
    auth.invalidate()
    agent.transport.outages = OutageLog(clock.monotonic)
    agent_log.clear()
    for _ in range(5):
        clock.now += 10
        assert lost(agent) == NO_ENDPOINT
    # The token that was due, and the catalog anew at once; then not again within the minute.
    assert auth.tokens == 2
    assert told(agent_log) == [("WARNING", f"placement unreachable: {NO_ENDPOINT}")]
    assert keystone_placement.requests == []
    for _ in range(12):
        clock.now += 10
        lost(agent)
    assert auth.tokens == 4
    keystone.register_placement(keystone_placement.url)
    clock.now += 10
    # The minute since the last look is not over, then it is.
    lost(agent)
    assert auth.tokens == 4
    clock.now += 10
    lost(agent)
    agent_log.clear()
    clock.now += 10
    assert agent.cycle().state == "in-sync"
    assert auth.tokens == 5
    assert told(agent_log) == [("INFO", "placement reachable again after 190 s")]
    # The view was never in doubt.
    assert [line.partition("?")[0] for line in keystone_placement.lines()] == [
        "GET /resource_providers"
    ]
    settled(agent, keystone_placement, agent_log, {NAME: node(HAS)})


PAGE = faults.Reply(200, b"<html>moved</html>", {"Content-Type": "text/html"})
ELSEWHERE = faults.Reply(301, b"", {"Location": "https://elsewhere.example/placement"})


@pytest.fixture
def old_place(keystone_placement: HttpPlacement) -> Iterator[FaultProxy]:
    """Where Placement was."""
    proxy = FaultProxy(keystone_placement.url)
    proxy.start()
    yield proxy
    proxy.stop()


@pytest.mark.parametrize(
    ("scheme", "action", "told_of_it"),
    [
        pytest.param("http", faults.reset(), "Connection reset", id="reset"),
        pytest.param("http", faults.Action("", reply=PAGE), "not Placement's", id="page"),
        pytest.param("http", faults.Action("", reply=faults.Reply(503)), "503", id="proxy"),
        pytest.param("https", None, "certificate of ", id="tls"),
        pytest.param("http", None, "cannot connect to ", id="gone"),
    ],
)
def test_an_endpoint_that_moved_is_found_in_the_catalog_which_is_asked_for_once_a_minute(
    scheme: str,
    action: faults.Action | None,
    told_of_it: str,
    agent: AgentUnderTest,
    auth: Counting,
    clock: Clock,
    keystone: Keystone,
    keystone_placement: HttpPlacement,
    old_place: FaultProxy,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    keystone.register_placement(f"{scheme}{old_place.url.removeprefix('http')}")
    if action is not None:
        old_place.faults.add(action, times=None)
    elif scheme == "http":
        old_place.stop()
    auth.invalidate()
    for _ in range(7):
        report = agent.period()
        problems = [*report.errors, *(error for one in report.nodes for error in one.errors)]
        assert told_of_it in problems[0].message
        clock.now += 10
    # The token that was due, and the catalog anew: at once, and after a minute.
    assert auth.tokens == 3
    assert keystone_placement.requests == []
    keystone.register_placement(keystone_placement.url)
    clock.now += 60
    agent.period()
    assert agent.cycle().state == "in-sync"
    assert auth.tokens == 4
    settled(agent, keystone_placement, agent_log, {NAME: node(HAS)})


@pytest.mark.long
def test_a_daemon_finds_an_endpoint_that_moves_from_http_to_https_without_a_reload(
    keystone: Keystone,
    keystone_placement: HttpPlacement,
    old_place: FaultProxy,
    agent_command: AgentCommand,
    tmp_path: Path,
) -> None:
    authority, context = Authority(tmp_path), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.pair("placement")
    context.load_cert_chain(pair.certificate, pair.key)
    new_place = FaultProxy(keystone_placement.url, tls=context)
    new_place.start()
    keystone.register_placement(old_place.url)
    agent_command.configure(
        {
            "DEFAULT": {
                "compute_driver": "fake.small",
                "host": "node-a",
                "update_resources_interval": 1,
            },
            "placement": {**keystone.credentials(), "cafile": authority.bundle},
        }
    )
    with Service(agent_command).running() as service:
        service.wait_for("READY", "1")
        keystone.register_placement(new_place.url)
        old_place.faults.add(faults.Action("moved", reply=ELSEWHERE), times=None)
        until(lambda: len(new_place.requests) > 1, lambda: service)
        until(lambda: service.status == "ready: 1 in-sync", lambda: service)
        service.stop()
    new_place.stop()


@pytest.mark.parametrize("way", ["expired", "revoked"])
def test_a_token_that_is_no_longer_good_costs_one_authentication_and_no_word(
    way: str,
    agent: AgentUnderTest,
    auth: Counting,
    keystone: Keystone,
    keystone_placement: HttpPlacement,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    if way == "expired":
        keystone.invalidate_tokens()
    else:
        keystone.revoke(str(agent.transport.adapter.get_token()))
    agent_log.clear()
    report = agent.cycle()
    assert (report.state, report.requests["GET"]) == ("in-sync", 2)
    assert [line.rpartition(" ")[2] for line in keystone_placement.lines()] == ["401", "200"]
    assert auth.tokens == 1
    assert told(agent_log) == []
    settled(agent, keystone_placement, agent_log, {NAME: node(HAS)})


def test_a_write_is_repeated_with_the_new_token_as_well(
    agent: AgentUnderTest,
    auth: Counting,
    keystone: Keystone,
    keystone_placement: HttpPlacement,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    more: Mapping[str, Any] = {**HAS, "VCPU": total(18)}

    def shape(tree: Any) -> None:
        # Between the read and the write, where nobody looks.
        keystone.invalidate_tokens()
        shaped(more)(tree)

    agent.driver.script = shape
    assert agent.cycle().state == "changed"
    assert [
        line.partition(" ")[0] + line.rpartition(" ")[2] for line in keystone_placement.lines()
    ][-2:] == ["PUT401", "PUT200"]
    agent.driver.script = shaped(more)
    settled(agent, keystone_placement, agent_log, {NAME: node(more)})


@pytest.mark.long
def test_an_identity_service_that_is_away_is_named_and_its_return_needs_no_restart(
    agent: AgentUnderTest,
    auth: Counting,
    keystone: Keystone,
    keystone_placement: HttpPlacement,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    keystone.kill()
    auth.invalidate()
    agent_log.clear()
    assert lost(agent).startswith(f"cannot connect to {keystone.url}/auth/tokens: ")
    lost(agent)
    assert (
        len([text for _, text in told(agent_log) if text.startswith("placement unreachable")]) == 1
    )
    assert keystone_placement.requests == []
    keystone.start()
    assert agent.cycle().state == "in-sync"
    assert keystone_placement.count() == 1
    settled(agent, keystone_placement, agent_log, {NAME: node(HAS)})


@pytest.mark.parametrize(
    ("scope", "message", "remedy"),
    [
        (
            {"project_name": PROJECT, "project_domain_id": "default"},
            "credentials for placement refused by identity at ",
            "the user has a role in that project",
        ),
        (
            {"system_scope": "all"},
            "credentials for placement refused by identity at ",
            "openstack role assignment list --user USER --system all --names",
        ),
        (
            {},
            "the token for placement has no service catalog, because it is for no project",
            "see that the user has a role in it",
        ),
    ],
)
def test_a_user_without_a_role_is_told_what_it_lacks(
    scope: Mapping[str, str], message: str, remedy: str, host: Host, keystone: Keystone
) -> None:
    session = Session(
        auth=v3.Password(
            keystone.url, username=NO_ROLE, password=PASSWORD, user_domain_id="default", **scope
        )
    )
    (error,) = host(shaped(HAS), session=session).report().errors
    assert error.message.startswith(message)
    assert remedy in error.remedy


def test_credentials_that_identity_refuses_name_it_and_count_as_no_request(
    agent: AgentUnderTest,
    auth: Counting,
    keystone: Keystone,
    keystone_placement: HttpPlacement,
    agent_log: pytest.LogCaptureFixture,
) -> None:
    keystone.disable(AGENT)
    auth.invalidate()
    report = agent.cycle()
    (error,) = report.errors
    assert error.code == "placement.unreachable"
    assert error.fatal
    assert error.message.startswith(
        f"credentials for placement refused by identity at {keystone.url}/auth/tokens"
    )
    assert report.requests["GET"] == 0
    keystone.enable(AGENT)
    assert agent.cycle().state == "in-sync"
    clean(keystone_placement, agent_log)
    assert PASSWORD not in agent_log.text


def test_an_application_credential_that_expired_is_told_and_a_new_one_ends_it(
    keystone: Keystone, keystone_placement: HttpPlacement, agent_command: AgentCommand
) -> None:
    session = keystone.session()
    own = f"{keystone.url}/users/{session.get_user_id()}/application_credentials"

    def configure(name: str, **fields: Any) -> None:
        body = {"application_credential": {"name": name, **fields}}
        made = session.post(own, json=body).json()["application_credential"]
        agent_command.configure(
            {
                "DEFAULT": {"compute_driver": "fake.small", "host": "node-a"},
                "placement": {
                    "auth_type": "v3applicationcredential",
                    "auth_url": keystone.url,
                    "application_credential_id": made["id"],
                    "application_credential_secret": made["secret"],
                },
            }
        )

    # Long enough for identity to take it before it has expired, on a machine that is very busy.
    expires = time.time() + 6
    configure("old", expires_at=datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    time.sleep(max(0.0, expires - time.time()))
    result = agent_command.run("--once")
    assert result.code == 1
    assert "that it has not expired:\n      openstack application credential list" in result.stdout
    configure("new")
    assert agent_command.run("--once").code == 0


class LoginPage(BaseHTTPRequestHandler):
    """A proxy that asks everybody for a login."""

    status = 401

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        page = b"<html>login</html>"
        self.send_response(self.status)
        self.send_header("WWW-Authenticate", 'Basic realm="a proxy"')
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


class FriendlyLoginPage(LoginPage):
    """The same, with the status of a good answer."""

    status = 200


@pytest.fixture(params=[LoginPage, FriendlyLoginPage])
def login_page(request: pytest.FixtureRequest) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), request.param)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ["/v3", "/identity"])
def test_a_login_page_in_place_of_identity_is_told_before_the_account_and_hangs_nothing(
    path: str,
    login_page: str,
    keystone: Keystone,
    keystone_placement: HttpPlacement,
    agent_command: AgentCommand,
) -> None:
    config: dict[str, dict[str, Any]] = {
        "DEFAULT": {"compute_driver": "fake.small", "host": "node-a"},
        "placement": {**keystone.credentials(), "auth_url": login_page + path},
    }
    agent_command.configure(config)
    result = agent_command.run("--once", "--format", "json", timeout=60)
    assert result.code == 1
    (error,) = result.json["errors"]
    assert login_page in error["message"] or "at the identity service" in error["message"]
    assert error["remedy"].startswith("check ")
    assert "[placement] auth_url" in error["remedy"].partition(";")[0]
    assert "a proxy, a login page" in error["remedy"]
    config["placement"]["auth_url"] = keystone.url
    agent_command.configure(config)
    assert agent_command.run("--once").code == 0
    assert keystone_placement.dump()["providers"]


@pytest.mark.parametrize("hangs", ["identity", "Placement"])
def test_a_service_that_hangs_is_waited_for_once_and_named_meanwhile(
    hangs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "QUIET", 0.2)
    agent = AgentHere(tmp_path / "agent")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        account = {
            "auth_type": "v3password",
            "auth_url": f"{url}/v3",
            "username": "agent",
            "password": "secret",
            "user_domain_id": "default",
            "project_name": "service",
            "project_domain_id": "default",
        }
        noauth = {"auth_type": "none", "endpoint_override": url}
        agent.configure(
            {
                "DEFAULT": {"compute_driver": "fake.small", "host": "node-a"},
                "placement": {
                    **(account if hangs == "identity" else noauth),
                    "read_timeout": 2,
                    "connect_timeout": 20,
                },
            }
        )
        result = agent.run("--once")
        assert result.code == 1
        assert f"no answer from {url}" in " ".join(result.stdout.split())
        who = "the identity service" if hangs == "identity" else f"Placement at {url}"
        (line,) = [one for one in result.stderr.splitlines() if "waiting for" in one]
        assert f"waiting for {who}, since " in line
        silent.setblocking(False)
        waited = 0
        with suppress(BlockingIOError):
            while silent.accept():
                waited += 1
    assert waited == 1
