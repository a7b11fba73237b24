"""What one server offers: asked for once, refused if too old, learned by many nodes together."""

import dataclasses
import http.client
import ssl

import pytest
import requests
import urllib3
import urllib3.exceptions as u3
from keystoneauth1 import exceptions as ksa

from agent.conf import service
from agent.errors import PlacementTooOld, PlacementUnreachable
from agent.http.bounded import BoundedAdapter, LastCalls
from agent.model.mirror import Journal, Ownership
from agent.model.names import ProviderUuid
from agent.model.provider_tree import PresentTree, ProviderTree
from agent.placement.mirror import log_changes, log_losses
from agent.placement.server import ASK_FOR_TRAIT_AGAIN, Server, learn_traits
from agent.placement.transport import OutageLog
from agent.placement.unreachable import unreachable
from tests.support import faults
from tests.support.placement import PlacementServer
from tests.unit.placement.conftest import transport_to
from tests.unit.placement.nodes import KNOWLEDGE, N0, NAME, ROOT, THEIR_AGGREGATE


class Kept:
    """The part of a store that a server uses, in memory."""

    def __init__(self):
        self.saved = {}

    def capabilities(self, endpoint):
        return self.saved.get(endpoint)

    def save_capabilities(self, capabilities):
        self.saved[capabilities.endpoint] = capabilities


def server_of(placement, kept=None, **options) -> Server:
    return Server(transport_to(placement), "http", kept or Kept(), **options)


@pytest.mark.parametrize(
    ("offered", "good"), [("1.29", False), ("1.9", False), ("1.30", True), ("1.36", True)]
)
def test_a_server_must_offer_1_30(offered, good):
    placement = PlacementServer(max_version=offered)
    kept = Kept()
    server = server_of(placement, kept)
    if good:
        assert server.connect(server.client()).max_version == offered
    else:
        with pytest.raises(
            PlacementTooOld,
            match=rf"needs placement 1\.30, server offers {offered} \({placement.url}\)",
        ):
            server.connect(server.client())
        assert kept.saved == {}
    placement.close()


def test_what_several_nodes_learn_adds_up(placement):
    server = server_of(placement)
    known = server.connect(server.client())
    server.learn(dataclasses.replace(known, traits=frozenset({"CUSTOM_A"}), can_reshape=False))
    merged = server.learn(dataclasses.replace(known, classes=frozenset({"CUSTOM_B"})))
    assert (
        merged
        == server.capabilities
        == dataclasses.replace(
            known,
            traits=frozenset({"CUSTOM_A"}),
            classes=frozenset({"CUSTOM_B"}),
            can_reshape=False,
        )
    )
    server.forget(known)
    assert server.capabilities == known


def test_each_client_has_a_request_id_of_its_own(placement):
    server = server_of(placement)
    one, other = server.client(), server.client()
    assert one.exchange.request_id.startswith("req-")
    assert one.exchange.request_id != other.exchange.request_id


# --- the API as typed calls: what goes into a URL, and what may come back ---


CONSUMER = "c0000000-0000-4000-8000-000000000001"
CALLS = {
    "max_version": lambda client: client.max_version(),
    "tree": lambda client: client.tree(ROOT),
    "providers_with_trait": lambda client: client.providers_with_trait("CUSTOM_A"),
    "provider": lambda client: client.provider(ROOT),
    "provider_named": lambda client: client.provider_named(NAME),
    "sharing": lambda client: client.sharing([THEIR_AGGREGATE]),
    "create_provider": lambda client: client.create_provider(N0, "N0", None),
    "update_provider": lambda client: client.update_provider(ROOT, "other", None),
    "inventories": lambda client: client.inventories(ROOT),
    "set_inventories": lambda client: client.set_inventories(ROOT, 0, {}),
    "traits": lambda client: client.traits(ROOT),
    "set_traits": lambda client: client.set_traits(ROOT, 0, []),
    "aggregates": lambda client: client.aggregates(ROOT),
    "set_aggregates": lambda client: client.set_aggregates(ROOT, 0, []),
    "usages": lambda client: client.usages(ROOT),
    "known_traits": lambda client: client.known_traits(["CUSTOM_A"]),
    "consumers": lambda client: client.consumers(ROOT),
    "allocation": lambda client: client.allocation(CONSUMER),
    "holdings": lambda client: client.holdings(ROOT),
    "candidates": lambda client: client.candidates("resources=VCPU:1"),
    "owner_usages": lambda client: client.owner_usages("project"),
    "set_allocation": lambda client: client.set_allocation(CONSUMER, {}),
    "set_allocations": lambda client: client.set_allocations({CONSUMER: {}}),
    "delete_allocation": lambda client: client.delete_allocation(CONSUMER),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("html", [True, False])
def test_whatever_answers_200_with_something_else_is_no_placement(call, html, placement, client):
    placement.faults.add(faults.html(200) if html else faults.answer(200), times=None)
    with pytest.raises(
        PlacementUnreachable, match="with something that is not Placement's"
    ) as refused:
        CALLS[call](client)
    assert (refused.value.kind, refused.value.outcome_unknown) == ("not-placement", True)


@pytest.mark.parametrize("name", ["HW_CPU_X86_AVX", "CUSTOM_a", "CUSTOM_A/../x", ""])
def test_only_custom_names_are_created(name, placement, client):
    for kind in ("traits", "resource_classes"):
        with pytest.raises(ValueError, match="is no custom name"):
            client.ensure_name(kind, name)
    assert placement.count() == 0


# --- an outage is told once a kind, then now and then, and its end once ---


REFUSED = "cannot connect to http://p: Connection refused"


class Clock:
    """The time, as the test says."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def outages(clock):
    return OutageLog(clock)


@pytest.fixture
def told(caplog):
    """What was logged since the last time this was asked."""
    caplog.set_level("DEBUG", "agent.placement.transport")

    def lines():
        said = [(record.levelname, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return said

    return lines


def test_failures_without_a_cycle_count_one_by_one(outages, told):
    for _ in range(11):
        outages.record_failure("catalog", "no endpoint")
    assert told() == [
        ("WARNING", "placement unreachable: no endpoint"),
        ("WARNING", "placement unreachable: no endpoint (suppressed 9)"),
    ]


def test_all_failures_of_one_cycle_count_once(outages, told):
    for cycle in range(10):
        for _ in range(5):
            outages.record_failure("connect", REFUSED, f"req-{cycle}")
    assert told() == [("WARNING", f"placement unreachable: {REFUSED}")]
    outages.record_failure("connect", REFUSED, "req-10")
    assert told() == [("WARNING", f"placement unreachable: {REFUSED} (suppressed 9)")]


def test_each_kind_is_told_and_counted_by_itself(outages, told):
    for cycle in range(10):
        outages.record_failure("connect", REFUSED, f"req-{cycle}")
        outages.record_failure("timeout", "too late", f"req-{cycle}")
    assert told() == [
        ("WARNING", f"placement unreachable: {REFUSED}"),
        ("WARNING", "placement unreachable: too late"),
    ]


def test_the_end_is_told_once_with_how_long_it_was_since_the_first_of_any_kind(
    outages, clock, told
):
    outages.record_failure("connect", REFUSED, "req-1")
    clock.now += 100
    outages.record_failure("timeout", "too late", "req-2")
    clock.now += 23.4
    told()
    outages.record_answer()
    outages.record_answer()
    assert told() == [("INFO", "placement reachable again after 123 s")]


# --- a message has a few names and a number, however many things others changed ---


MANY = 8000
UUIDS = [ProviderUuid(f"{number:08}") for number in range(MANY)]


def test_few_names_of_many_deleted_providers(caplog):
    names = [f"node_{number:04}" for number in range(MANY)]
    log_changes(names, ())
    log_changes(names[:1], names[1:])
    log_changes(names[:5], ())
    first, back, all_named = (record.getMessage() for record in caplog.records)
    assert "(node_0000, node_0001, node_0002, node_0003, node_0004 and 7995 more)" in first
    assert "node_0004 and 7995 more)" in back
    assert "(node_0000, node_0001, node_0002, node_0003, node_0004);" in all_named


def test_few_of_many_providers_that_lost_traits(caplog):
    traits = frozenset(("CUSTOM_A",))
    lost = log_of_losses(traits, UUIDS[:20], caplog)
    assert lost[0] == "provider p00000001 lost traits that the agent had set: CUSTOM_A"
    assert len(lost) == 6
    assert lost[5] == "14 more providers lost traits that the agent had set"
    assert len(log_of_losses(traits, UUIDS[:6], caplog)) == 5


def log_of_losses(traits, uuids, caplog):
    """The messages when all providers but the root, whose write had an unknown outcome, have lost
    their traits.
    """
    before, after = ProviderTree(), ProviderTree()
    for tree in (before, after):
        tree.populate_from_iterable(
            {
                "uuid": uuid,
                "name": f"p{uuid}",
                "parent_uuid": uuids[0] if uuid != uuids[0] else None,
            }
            for uuid in uuids
        )
    for uuid in uuids:
        before.update_traits(uuid, traits)
    caplog.clear()
    journal = Journal({uuid: Ownership(traits=traits) for uuid in uuids})
    log_losses(PresentTree(before), PresentTree(after), uuids[0], journal, frozenset(uuids[:1]))
    return [record.getMessage() for record in caplog.records]


# --- which names a server knows ---


AVX, FUTURE = "HW_CPU_X86_AVX", "HW_OF_THE_FUTURE"


class KnowingServer:
    """A client that knows some traits and remembers what it was asked."""

    def __init__(self, *known):
        self.known, self.asked = frozenset(known), []

    def known_traits(self, names):
        self.asked.append(sorted(names))
        return self.known & frozenset(names)


def test_what_was_asked_for_is_not_asked_again():
    server = KnowingServer(AVX)
    learned = learn_traits(server, KNOWLEDGE, [AVX, FUTURE], 1000.0)
    assert learn_traits(server, learned, [FUTURE, AVX], 1000.0 + ASK_FOR_TRAIT_AGAIN - 1) is learned
    assert learn_traits(server, learned, [], 99999.0) is learned
    assert server.asked == [[AVX, FUTURE]]


def test_a_clock_that_was_set_back_does_not_leave_a_trait_out_for_longer():
    learned = learn_traits(KnowingServer(), KNOWLEDGE, [FUTURE], 1_000_000.0)
    server = KnowingServer(FUTURE)
    assert FUTURE in learn_traits(server, learned, [FUTURE], 1000.0).traits
    assert server.asked == [[FUTURE]]


def test_a_name_that_only_begins_like_a_custom_one_cannot_be_created():
    assert set(learn_traits(KnowingServer(), KNOWLEDGE, ["CUSTOM_lower"], 0.0).unknown_traits) == {
        "CUSTOM_lower"
    }


# --- what keystoneauth's exceptions mean ---


URL = "http://placement:8778"


def failure_of(error, region=None, interface=None):
    return unreachable(error, URL, region, interface, "5 s for a connection and 60 s for an answer")


def caused(error: Exception, *causes: Exception) -> Exception:
    """``error``, raised from the first of ``causes``, that from the next, and so on."""
    below = error
    for cause in causes:
        below.__cause__ = cause
        below = cause
    return error


def new_connection(text="refused"):
    return u3.NewConnectionError(None, f"Failed to establish a new connection: {text}")


CASES = [
    (
        ksa.EndpointNotFound(),
        "catalog",
        False,
        "no placement endpoint for region any, interface any in the service catalog",
    ),
    (ksa.EmptyCatalog(), "catalog", False, "the token for placement has no service catalog"),
    (
        ksa.MissingAuthPlugin(),
        "credentials",
        True,
        "credentials incomplete or contradictory: ",
    ),
    (
        ksa.Unauthorized("wrong password"),
        "credentials",
        True,
        "credentials for placement refused by identity",
    ),
    (
        ksa.AuthorizationFailure("no user"),
        "credentials",
        True,
        "credentials incomplete or contradictory: no user",
    ),
    (
        ksa.SSLError("unknown issuer"),
        "tls",
        True,
        f"certificate of {URL} not accepted: unknown issuer",
    ),
    (
        ksa.NotFound("Could not find Application Credential: x."),
        "credentials",
        True,
        "credentials for placement refused by identity",
    ),
    (ksa.InternalServerError("boom"), "identity", False, "identity service"),
    (ksa.ServiceUnavailable("down"), "identity", False, "identity service"),
    (ksa.GatewayTimeout("slow"), "identity", False, "identity service"),
    (
        ksa.DiscoveryFailure("nothing there"),
        "discovery",
        False,
        f"version discovery at {URL} failed: nothing there",
    ),
    (ksa.VersionNotAvailable("none"), "discovery", False, f"version discovery at {URL} failed"),
    (
        ksa.ConnectTimeout("slow"),
        "timeout",
        False,
        f"no answer from {URL} in time; waited up to 5 s for a connection and 60 s for an answer",
    ),
    (ksa.ConnectFailure("gone"), "connect", False, f"cannot connect to {URL}: gone"),
    (
        ksa.UnknownConnectionError("odd", ValueError()),
        "broken",
        False,
        f"connection to {URL} broken",
    ),
    (
        OSError("Could not find a suitable TLS CA certificate bundle, invalid path: /x"),
        "tls",
        True,
        f"certificate of {URL} not accepted: Could not find",
    ),
    (ValueError("odd"), "broken", False, f"connection to {URL} broken: odd"),
    (ksa.ClientException("anything"), "broken", False, f"connection to {URL} broken: anything"),
]


@pytest.mark.parametrize(("error", "kind", "fatal", "message"), CASES)
def test_every_class_of_failure_has_its_kind_and_text(error, kind, fatal, message):
    failure = failure_of(error)
    assert (failure.kind, failure.fatal) == (kind, fatal)
    assert failure.message.startswith(message)
    assert failure.remedy


def test_a_missing_endpoint_names_region_and_interface():
    assert failure_of(ksa.EndpointNotFound(), "RegionOne", "internal").message == (
        "no placement endpoint for region RegionOne, interface internal in the service catalog"
    )


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (
            caused(
                ksa.ConnectFailure("x"),
                requests.ConnectionError(
                    u3.ProtocolError("aborted", ConnectionResetError(104, "reset"))
                ),
            ),
            True,
        ),
        (
            caused(
                ksa.ConnectFailure("x"),
                requests.ConnectionError(
                    u3.ProtocolError("aborted", http.client.RemoteDisconnected("closed"))
                ),
            ),
            True,
        ),
        (
            caused(
                ksa.ConnectFailure("x"),
                requests.ConnectionError(u3.MaxRetryError(None, URL, new_connection())),
            ),
            False,
        ),
        (
            caused(
                ksa.ConnectFailure("x"),
                requests.ConnectionError(
                    u3.MaxRetryError(None, URL, u3.NameResolutionError("h", None, OSError()))
                ),
            ),
            False,
        ),
        (
            caused(
                ksa.ConnectTimeout("x"),
                requests.ConnectTimeout(u3.MaxRetryError(None, URL, u3.ConnectTimeoutError())),
            ),
            False,
        ),
        (
            caused(
                ksa.ConnectTimeout("x"),
                requests.ReadTimeout(u3.ReadTimeoutError(None, URL, "read")),
            ),
            True,
        ),
        (ksa.UnknownConnectionError("x", ValueError()), True),
        (ksa.EndpointNotFound(), False),
        (ksa.Unauthorized(), False),
        (ksa.ServiceUnavailable(), False),
        (ksa.SSLError("x"), False),
    ],
)
def test_whether_a_write_may_have_been_applied(error, unknown):
    assert failure_of(error).outcome_unknown is unknown


@pytest.mark.parametrize(
    ("causes", "reason"),
    [
        (
            (
                requests.ConnectionError(new_connection("x")),
                ConnectionRefusedError(111, "Connection refused"),
            ),
            "Connection refused",
        ),
        (
            (
                requests.ConnectionError(
                    u3.ProtocolError("aborted", http.client.RemoteDisconnected("Remote end closed"))
                ),
            ),
            "Remote end closed",
        ),
        (
            (
                requests.exceptions.SSLError(
                    u3.SSLError(ssl.SSLError(1, "self-signed certificate"))
                ),
            ),
            "self-signed certificate",
        ),
    ],
)
def test_the_innermost_text_is_the_reason(causes, reason):
    assert (
        reason
        in failure_of(
            caused(
                ksa.ConnectFailure("Unable to establish connection to http://x: wrapped"), *causes
            )
        ).message
    )


def test_the_url_that_was_asked_is_named_without_its_query():
    asked = requests.ConnectionError(
        request=requests.Request("GET", "http://identity/v3/auth/tokens?name=x").prepare()
    )
    assert (
        failure_of(caused(ksa.ConnectFailure("gone"), asked)).message
        == "cannot connect to http://identity/v3/auth/tokens: gone"
    )


def test_an_answer_of_the_identity_service_that_is_no_http_names_that():
    asked = requests.ConnectionError(
        request=requests.Request("POST", "http://token@identity/v3/auth/tokens?x=y").prepare()
    )
    failure = failure_of(
        caused(
            ksa.ConnectFailure("x"),
            asked,
            u3.ProtocolError("aborted"),
            http.client.BadStatusLine("220 mail"),
        )
    )
    call = "http://***@identity/v3/auth/tokens answered POST"
    assert (
        failure.message
        == f"{call} with something that is not an identity service's: BadStatusLine: 220 mail"
    )
    assert (failure.kind, failure.remedy) == (
        "not-placement",
        "check [placement] auth_url, and what stands in front of it: a proxy, a login page",
    )


@pytest.mark.parametrize(
    "error", [ksa.Unauthorized, ksa.InternalServerError, ksa.ServiceUnavailable, ksa.GatewayTimeout]
)
def test_an_answer_of_the_identity_service_names_that(error):
    identity = "http://identity/v3/auth/tokens"
    assert f"identity at {identity}" in failure_of(error("x", url=identity)).message.replace(
        "service ", ""
    )


def test_a_reason_is_one_printable_line():
    assert (
        failure_of(ksa.ConnectFailure("two\nlines \x1b[31m")).message
        == f"cannot connect to {URL}: two lines \\x1b[31m"
    )


def test_a_chain_of_causes_that_bites_its_tail_ends():
    error, cause = ksa.ConnectFailure("x"), ValueError()
    error.__cause__, cause.__context__ = cause, error
    assert failure_of(error).kind == "connect"


# --- of some calls the last ones close what none of them uses any more ---


def test_nothing_is_closed_while_calls_wait_to_begin() -> None:
    closed: list[int] = []
    calls = LastCalls(3, lambda: closed.append(1))
    assert [calls.run(lambda: 7), calls.run(lambda: 8)] == [7, 8]
    assert closed == []
    assert calls.run(lambda: 9) == 9
    assert closed == [1]


def test_an_exception_is_the_end_of_its_own_call_only() -> None:
    closed: list[int] = []
    calls = LastCalls(2, lambda: closed.append(1))
    for expected in ([], [1]):
        with pytest.raises(ZeroDivisionError):
            calls.run(lambda: 1 // 0)
        assert closed == expected
        assert not LastCalls.in_one()


def pool_of(adapter: BoundedAdapter, scheme: str) -> urllib3.HTTPConnectionPool:
    pool = adapter.poolmanager.connection_from_url(f"{scheme}://127.0.0.1:1/")
    assert isinstance(pool, urllib3.HTTPConnectionPool)
    return pool


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_last_used_connections_stay(scheme: str) -> None:
    adapter = BoundedAdapter()
    pool = pool_of(adapter, scheme)
    taken = [pool._get_conn() for _ in range(3)]
    for connection in taken:
        pool._put_conn(connection)
    adapter.close_idle(2)
    assert pool._get_conn() is taken[2]
    assert pool._get_conn() is taken[1]
    assert pool._get_conn() is not taken[0]
    # A pool that was closed as a whole has none.
    pool.close()
    adapter.close_idle(0)


def test_as_many_connections_may_be_idle_as_there_may_be_requests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The library below keeps ten unless it is told otherwise, and warns of each that is more."""
    (most,) = (option.type.max for option in service.PLACEMENT if option.name == "max_in_flight")
    pool = pool_of(BoundedAdapter(), "http")
    taken = [pool._get_conn() for _ in range(most)]
    for connection in taken:
        pool._put_conn(connection)
    assert {pool._get_conn() for _ in range(most)} == set(taken)
    assert not caplog.records
