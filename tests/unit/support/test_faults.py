"""Every fault as a client sees it through a real keystoneauth adapter, in process and through the
proxy.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import requests
from keystoneauth1 import exceptions
from keystoneauth1.adapter import Adapter

from tests.support import faults
from tests.support.placement import noauth_session

TRAIT = "CUSTOM_WRITTEN"
PATIENCE = 20.0
IMPATIENCE = 0.3


def patience_for(action: faults.Action) -> float:
    """Seconds a client waits: briefly where the fault is that nothing comes."""
    return (
        IMPATIENCE
        if action.loss in (faults.Loss.READ_TIMEOUT, faults.Loss.CONNECT_TIMEOUT)
        else PATIENCE
    )


LOST = [
    (faults.cut(), exceptions.ConnectFailure),
    (faults.cut(applied=True), exceptions.ConnectFailure),
    (faults.reset(), exceptions.ConnectFailure),
    (faults.reset(applied=True), exceptions.ConnectFailure),
    (faults.read_timeout(), exceptions.ConnectTimeout),
    (faults.read_timeout(applied=True), exceptions.ConnectTimeout),
]

NEVER_CONNECTED = [
    (faults.refused(), exceptions.ConnectFailure),
    (faults.no_route(), exceptions.ConnectFailure),
    (faults.unresolved(), exceptions.ConnectFailure),
    (faults.connect_timeout(), exceptions.ConnectTimeout),
    (faults.bad_certificate(), exceptions.SSLError),
]

ANSWERED = [
    (faults.answer(409, "placement.concurrent_update"), 409),
    (faults.answer(429, headers={"Retry-After": "7"}), 429),
    (faults.answer(500), 500),
    (faults.answer(503), 503),
    (faults.answer(504, applied=True), 504),
    (faults.html(502), 502),
    (faults.html(502, applied=True), 502),
]


class Place:
    """A Placement, the faults before it, and a client beyond them."""

    def __init__(self, server: Any, disturbed: Any, url: str) -> None:
        self.server = server
        self.disturbed = disturbed
        self.url = url
        self.faults: faults.Faults = disturbed.faults

    def client(self) -> Adapter:
        session = (
            self.server.session()
            if self.disturbed is self.server
            else noauth_session(self.url, "admin,service")
        )
        return Adapter(
            session, service_type="placement", default_microversion="1.39", raise_exc=False
        )

    def write(self, timeout: float = PATIENCE) -> requests.Response:
        return self.client().put(f"/traits/{TRAIT}", timeout=timeout)

    @property
    def written(self) -> bool:
        return TRAIT in self.server.dump()["custom_traits"]


@pytest.fixture(params=["placement", "proxy"])
def place(request: pytest.FixtureRequest) -> Place:
    disturbed = request.getfixturevalue(request.param)
    server = (
        disturbed if request.param == "placement" else request.getfixturevalue("http_placement")
    )
    return Place(server, disturbed, disturbed.url)


def named(case: Any) -> str | None:
    return (
        f"{case.name}{'-applied' if case.applied else ''}"
        if isinstance(case, faults.Action)
        else None
    )


@pytest.mark.parametrize(("action", "error"), LOST, ids=named)
def test_a_lost_answer_raises_and_the_write_is_applied_or_not_as_asked(
    place: Place, action: faults.Action, error: type
) -> None:
    rule = place.faults.add(action)
    with pytest.raises(error) as raised:
        place.write(patience_for(action))
    assert type(raised.value) is error
    deadline = time.monotonic() + PATIENCE
    while action.applied and not place.written and time.monotonic() < deadline:
        time.sleep(0.01)
    assert place.written is action.applied
    assert rule.hits == 1
    (seen,) = place.disturbed.requests
    assert (seen.fault, seen.status, seen.reached) == (action.name, None, action.applied)
    assert place.write().status_code == (204 if action.applied else 201)


@pytest.mark.parametrize(("action", "status"), ANSWERED, ids=named)
def test_an_injected_answer_reaches_the_client(
    place: Place, action: faults.Action, status: int
) -> None:
    place.faults.add(action)
    response = place.write()
    assert action.reply is not None
    assert (response.status_code, response.content) == (status, action.reply.body)
    assert all(response.headers[name] == value for name, value in action.reply.headers.items())
    assert place.written is action.applied
    assert place.disturbed.lines() == [f"PUT /traits/{TRAIT} -> {status}"]


def test_an_injected_error_has_the_form_of_placements_own(place: Place) -> None:
    place.faults.add(faults.answer(409, "placement.concurrent_update"))
    injected = place.write().json()["errors"][0]
    own = (
        place.client()
        .post("/resource_providers", json={"uuid": "no uuid", "name": "x"})
        .json()["errors"][0]
    )
    assert set(own) == set(injected)
    assert injected["code"] == "placement.concurrent_update"


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_answer_that_breaks_off_is_an_unknown_connection_error(
    place: Place, method: str
) -> None:
    provider = place.server.other.create_provider("node")
    body = (
        {"json": {"resource_provider_generation": 0, "traits": ["HW_CPU_X86_AVX"]}}
        if method == "PUT"
        else {}
    )
    place.faults.add(faults.half_answer())
    with pytest.raises(exceptions.UnknownConnectionError):
        place.client().request(f"/resource_providers/{provider}/traits", method, **body)
    assert place.server.other.traits(provider) == ({"HW_CPU_X86_AVX"} if method == "PUT" else set())


def test_half_of_an_empty_answer_is_no_answer(place: Place) -> None:
    place.faults.add(faults.half_answer())
    with pytest.raises(exceptions.ConnectFailure):
        place.write()
    assert place.written


def test_a_delay_is_felt_and_the_request_is_handled(place: Place) -> None:
    place.faults.add(faults.delay(0.1))
    started = time.monotonic()
    assert place.write().status_code == 201
    assert time.monotonic() - started >= 0.1


def test_somebody_else_acts_before_placement_handles_the_request(place: Place) -> None:
    provider = place.server.other.create_provider("node")
    place.faults.add(
        faults.before(lambda _: place.server.other.set_inventory(provider, {"VCPU": 1})),
        method="PUT",
    )
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 2}}}
    response = place.client().put(f"/resource_providers/{provider}/inventories", json=body)
    assert response.status_code == 409
    assert response.json()["errors"][0]["code"] == "placement.concurrent_update"
    assert place.server.other.inventory(provider)["VCPU"]["total"] == 1


def test_somebody_else_acts_after_placement_handled_the_request(place: Place) -> None:
    provider = place.server.other.create_provider("node")
    place.faults.add(
        faults.after(lambda _: place.server.other.set_inventory(provider, {"VCPU": 1})),
        method="PUT",
    )
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 2}}}
    response = place.client().put(f"/resource_providers/{provider}/inventories", json=body)
    assert response.json()["resource_provider_generation"] == 1
    assert place.server.dump()["providers"][provider]["generation"] == 2


def test_other_clients_are_neither_disturbed_nor_logged(place: Place) -> None:
    rule = place.faults.add(faults.answer(503), times=None)
    place.server.other.create_provider("node")
    assert rule.hits == 0
    assert place.disturbed.requests == []


def test_rules_choose_by_method_path_and_number(place: Place) -> None:
    rule = place.faults.add(
        faults.answer(503), method="GET", path=r"^/resource_providers\?name=", skip=1, times=2
    )
    client = place.client()
    statuses = [client.get("/resource_providers?name=x").status_code for _ in range(4)]
    assert statuses == [200, 503, 503, 200]
    assert client.get("/resource_providers").status_code == 200
    assert place.write().status_code == 201
    assert (rule.seen, rule.hits) == (4, 2)


def test_the_first_rule_that_hits_decides_and_cleared_rules_are_gone(place: Place) -> None:
    place.faults.add(faults.answer(500))
    place.faults.add(faults.answer(503), times=None)
    assert [place.write().status_code for _ in range(3)] == [500, 503, 503]
    place.faults.clear()
    assert place.write().status_code == 201


def hits_of(seed: int) -> list[str | None]:
    rules = faults.Faults()
    rules.add([faults.cut(), faults.answer(503)], probability=0.5, times=None, seed=seed)
    exchanges = [faults.Exchange("GET", "/") for _ in range(200)]
    for exchange in exchanges:
        rules.hit(exchange)
    return [exchange.fault for exchange in exchanges]


def test_random_faults_repeat_with_their_seed() -> None:
    assert hits_of(1) == hits_of(1)
    assert hits_of(1) != hits_of(2)
    assert set(hits_of(1)) == {None, "cut", "answer-503"}
    assert 60 < hits_of(1).count(None) < 140


@pytest.mark.parametrize(("action", "error"), NEVER_CONNECTED, ids=named)
def test_a_connection_that_is_not_made_raises_and_applies_nothing(
    placement: Any, action: faults.Action, error: type
) -> None:
    placement.faults.add(action)
    with pytest.raises(error) as raised:
        Place(placement, placement, placement.url).write()
    assert type(raised.value) is error
    assert placement.dump()["custom_traits"] == []
    assert placement.lines() == [f"PUT /traits/{TRAIT} -> {action.name}"]


def test_a_request_that_never_connected_cannot_have_been_applied() -> None:
    with pytest.raises(ValueError, match="cannot have been applied"):
        faults.Action("wrong", loss=faults.Loss.REFUSED, applied=True)


# --- the exceptions of the transport without sockets are those of sockets -------------------------


@pytest.fixture
def closed_url() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"


@pytest.fixture
def deaf_url() -> Iterator[str]:
    """A listener whose queue of connections is full, so that the kernel ignores more of them."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as listener:
        waiting = [socket.socket() for _ in range(3)]
        for connection in waiting:
            connection.setblocking(False)
            connection.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        for connection in waiting:
            connection.close()


@pytest.fixture
def untrusted_url(tmp_path: Any) -> Iterator[str]:
    import ssl
    import subprocess

    key, certificate = tmp_path / "key", tmp_path / "certificate"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*new, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def shake_hands(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with closing(connection), pytest.raises(ssl.SSLError):
            context.wrap_socket(connection, server_side=True)

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=shake_hands, args=(listener,))
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join(60)


def chain(
    session: requests.Session, url: str, timeout: float = PATIENCE
) -> list[tuple[str, int | None]]:
    """The classes of the exception and of what it came from, with the numbers of the system's
    errors.
    """
    with pytest.raises(requests.exceptions.RequestException) as raised:
        session.get(url, timeout=timeout)
    error: BaseException | None = raised.value
    found = []
    while error is not None:
        found.append((type(error).__name__, getattr(error, "errno", None)))
        error = error.__cause__ or error.__context__
    return found


def in_process_chain(placement: Any, action: faults.Action) -> list[tuple[str, int | None]]:
    placement.faults.add(action)
    return chain(placement.session().session, f"{placement.url}/")


@pytest.mark.parametrize(
    "action", [faults.cut(), faults.reset(), faults.read_timeout(), faults.half_answer()], ids=named
)
def test_broken_connections_raise_the_same_as_broken_sockets(
    placement: Any, proxy: Any, action: faults.Action
) -> None:
    proxy.faults.add(action)
    assert in_process_chain(placement, action) == chain(
        requests.Session(), f"{proxy.url}/", patience_for(action)
    )


@pytest.mark.parametrize(
    ("action", "place_of_failure"),
    [
        (faults.refused(), "closed_url"),
        (faults.connect_timeout(), "deaf_url"),
        (faults.bad_certificate(), "untrusted_url"),
    ],
    ids=named,
)
def test_missing_connections_raise_the_same_as_sockets(
    placement: Any, request: pytest.FixtureRequest, action: faults.Action, place_of_failure: str
) -> None:
    assert in_process_chain(placement, action) == chain(
        requests.Session(), request.getfixturevalue(place_of_failure), patience_for(action)
    )


def test_an_unknown_host_raises_the_same_as_the_resolver(placement: Any) -> None:
    real = chain(requests.Session(), "http://placement.invalid/")
    assert [name for name, _ in in_process_chain(placement, faults.unresolved())] == [
        name for name, _ in real
    ]
