"""A daemon that is killed again and again while it claims: what it has acknowledged is there, what
was given back is not, and all is counted once.
"""

import itertools
import random
import threading

import pytest

from agent.api.client import ApiProblem, ApiUnreachable
from tests.functional.test_daemon_claims import Host
from tests.support.service_manager import until
from tests.support.tracking import F1, uuid_of

pytestmark = pytest.mark.long

THREADS, HELD = 4, 3
RESERVED_MB, EACH_MB = 512, F1.memory_mb


class Account:
    """What clients know of the claims that they asked for."""

    def __init__(self):
        self.held, self.over, self.unknown = set(), set(), set()
        self.acknowledged = 0
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def claim(self, host):
        """Ask for one; what becomes of it is unknown until there is an answer."""
        with self._lock:
            name = f"k{next(self._numbers)}"
            id = uuid_of(f"claim-{name}")
            self.unknown.add(id)
        host.claim(name)
        with self._lock:
            self.unknown.remove(id)
            self.held.add(id)
            self.acknowledged += 1
        return id

    def abort(self, host, id):
        with self._lock:
            self.held.remove(id)
            self.unknown.add(id)
        host.client.abort_claim(id)
        with self._lock:
            self.unknown.remove(id)
            self.over.add(id)
            self.acknowledged += 1

    def check(self, host):
        """The daemon has what it acknowledged; of the rest it now says what became of it."""
        claims = {one["id"] for one in host.client.claims()}
        assert self.held <= claims
        assert not claims & self.over
        assert claims <= self.held | self.unknown
        assert host.records["usage"]["memory_mb_used"] == RESERVED_MB + EACH_MB * len(claims)
        for id in claims:
            host.client.abort_claim(id)
        self.over |= self.held | self.unknown
        self.held.clear()
        self.unknown.clear()


def load(host, account, failures):
    """Claim and give back until the daemon is gone."""
    own = []
    try:
        while True:
            own.append(account.claim(host))
            if len(own) > HELD:
                account.abort(host, own.pop(0))
    except ApiUnreachable:
        pass
    except ApiProblem as problem:
        failures.append(problem)


@pytest.mark.parametrize("rounds", [2, pytest.param(200, marks=pytest.mark.soak)])
def test_no_acknowledged_claim_is_lost_when_the_daemon_is_killed_under_load(
    http_placement, tmp_path, rounds
):
    host, account, chance, failures = (
        Host(tmp_path / "agent", http_placement.url),
        Account(),
        random.Random(0),
        [],
    )
    for _ in range(rounds):
        with host.service.running() as service:
            host.answers(host.client.readiness)
            account.check(host)
            before = account.acknowledged
            threads = [
                threading.Thread(target=load, args=[host, account, failures])
                for _ in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            until(lambda: account.acknowledged > before + 10 or failures, lambda: service)  # noqa: B023 - waited for at once
            threading.Event().wait(chance.uniform(0, 0.5))
            service.kill()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
        assert not failures
    with host.service.running() as service:
        host.answers(host.client.readiness)
        account.check(host)
        assert service.stop()[0] == 0
    assert account.acknowledged > 10 * rounds
