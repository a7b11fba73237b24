"""Claims and health while somebody attacks the daemon's socket, or Placement hangs: as ratios to
the calm case, with generous ends.
"""

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from agent.api.local_api import WORKERS
from agent.api.socket_file import health_socket
from tests.functional.api.attacks import BODIES, UNFINISHED, post, send_shapes, unfinished, unread
from tests.functional.test_daemon_claims import Host
from tests.support.service_manager import until
from tests.support.site import flavor_body, instance_body
from tests.support.tracking import F1, guest, uuid_of

# What a request may take, at the worst, beside those that attack: so many times the calm case, and
# these seconds for a busy machine.
TIMES, SECONDS = 20, 5.0
MEMORY_MIB = 60
NUMBERS = count()


pytestmark = [pytest.mark.xdist_group("attacks"), pytest.mark.long]


@pytest.fixture(scope="module")
def server(_http_placement):
    """A Placement that keeps what is in it from test to test."""
    if not _http_placement.running:
        _http_placement.start()
    _http_placement.reset()
    yield _http_placement
    _http_placement.resume()


@pytest.fixture(scope="module")
def host(server, tmp_path_factory):
    """One daemon for all attacks."""
    with attackable(Host(tmp_path_factory.mktemp("attacked") / "agent", server.url)) as found:
        yield found


@contextlib.contextmanager
def attackable(host):
    """Its daemon, once it is ready."""
    with host.service.running() as service:
        host.answers(host.client.readiness)
        host.root = next(iter(host.client.nodes()))["uuid"]
        yield host
        assert "Traceback" not in service.log


def resident(host, which="VmHWM"):
    """MiB of memory: now, or at the most."""
    for line in Path(f"/proc/{host.service.process.pid}/status").read_text().splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(which)


def small_work(host):
    """Seconds for an answer about health, and for a claim that is made and given back;
    the longest.
    """
    begun = time.monotonic()
    host.client.health()
    ApiClient(health_socket(host.command.socket)).health()
    healthy = time.monotonic()
    number = next(NUMBERS)
    id = uuid_of(f"attacked-{number}")
    host.client.create_claim(
        {
            "id": id,
            "node": host.root,
            "instance": instance_body(f"a{number}"),
            "flavor": flavor_body(F1),
        }
    )
    host.client.abort_claim(id)
    return max(healthy - begun, (time.monotonic() - healthy) / 2)


@contextlib.contextmanager
def held(host, work=None):
    """What is held while the block attacks: claims and health are answered nearly as fast as
    before, and memory stays.
    """
    work = work or small_work
    calm = max(work(host) for _ in range(10))
    Path(f"/proc/{host.service.process.pid}/clear_refs").write_text("5")
    before = resident(host, "VmRSS")
    over, worst, failures = threading.Event(), [0.0], []

    def look():
        while not over.is_set():
            try:
                worst[0] = max(worst[0], work(host))
            except (ApiProblem, ApiUnreachable) as error:
                failures.append(error)
                return

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(120)
    assert not failures, failures
    assert 0 < worst[0] < TIMES * calm + SECONDS, (worst, calm)
    assert resident(host) - before < MEMORY_MIB


def test_no_body_takes_time_or_memory_from_others(host):
    with held(host), ThreadPoolExecutor(4) as pool:
        for name, body in BODIES.items():
            assert len(body) <= 1024 * 1024 + 100_000, name
            for status, answer, _ in pool.map(
                lambda one: post(host.command.socket, "/v1/audits", one), [body] * 4
            ):
                problem = json.loads(answer)
                assert status in (400, 413), (name, problem)
                assert len(problem.get("errors", ())) <= 20
                assert len(answer) < 20_000, name


def test_a_placement_that_hangs_takes_no_more_than_half_of_the_threads(host, server):
    server.suspend()
    ended = []

    def remove(number):
        try:
            host.client.remove_allocation(guest(f"h{number}"), "all")
        except ApiProblem as problem:
            ended.append(problem)

    waiting = [
        threading.Thread(target=remove, args=[number], daemon=True) for number in range(2 * WORKERS)
    ]
    with held(host):
        for one in waiting:
            one.start()
        until(lambda: len(ended) >= 2 * WORKERS - WORKERS // 2, lambda: ended)
        for _ in range(5):
            small_work(host)
        # Those that came first still wait.
        assert {(one.status, one.code) for one in ended} == {(503, "agent.busy")}
        status, _, headers = post(host.command.socket, "/v1/reload", b"")
        assert (status, headers["retry-after"]) == (503, "1")
    server.resume()
    for one in waiting:
        one.join(120)
        assert not one.is_alive()
    # The others were done.
    assert len(ended) == 2 * WORKERS - WORKERS // 2


def state(host):
    """Seconds for what needs no store."""
    begun = time.monotonic()
    host.client.health()
    with contextlib.suppress(ApiProblem):
        # What it says depends on what the audits have seen meanwhile.
        host.client.readiness()
    assert host.client.metrics()
    assert next(iter(host.client.nodes()))
    return time.monotonic() - begun


def test_a_database_server_that_hangs_takes_no_thread_from_health_and_figures_and_is_waited_for_in_bounds(
    server, postgresql, tmp_path
):
    host = Host(tmp_path / "agent", server.url)
    database = postgresql.create()
    host.config["store"] = {"connection": postgresql.url(database)}
    host.command.configure(host.config)
    with attackable(host):
        ended = []

        def claim(number):
            try:
                ended.append(host.claim(f"s{number}"))
            except ApiProblem as problem:
                ended.append(problem)

        with postgresql.suspended():
            waiting = [
                threading.Thread(target=claim, args=[number], daemon=True)
                for number in range(3 * WORKERS)
            ]
            with held(host, state):
                for one in waiting:
                    one.start()
                # Those that find no place do not wait for one for long.
                until(lambda: len(ended) >= 2 * WORKERS, lambda: ended)
                for _ in range(5):
                    state(host)
            assert {(one.status, one.code) for one in ended} == {(503, "agent.busy")}
        for one in waiting:
            one.join(120)
            assert not one.is_alive()
        # A claim that was under way is made once, whatever became of it.
        for number in range(3 * WORKERS):
            host.answers(lambda: host.claim(f"s{number}"))  # noqa: B023 - asked at once
        assert (
            len({claim["instance"] for claim in host.client.claims()})
            == len(list(host.client.claims()))
            == 3 * WORKERS
        )
    postgresql.drop(database)


def test_clients_that_read_nothing_keep_nobody_waiting(host):
    with held(host), unread(host.command.socket, host.root):
        for _ in range(10):
            small_work(host)


@pytest.mark.parametrize("name", UNFINISHED)
def test_connections_by_the_hundred_keep_nobody_waiting(host, name):
    with held(host), unfinished(host.command.socket, name):
        for _ in range(10):
            small_work(host)


def test_shapes_that_are_no_http_keep_nobody_waiting(host):
    with held(host):
        send_shapes(host.command.socket, host.root)


def test_a_flood_of_sixteen_threads_is_answered_and_keeps_nobody_waiting(host):
    with held(host), ThreadPoolExecutor(16) as pool:
        assert len(list(pool.map(lambda _: host.client.health(), range(1600)))) == 1600
