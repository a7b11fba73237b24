"""A lease on many nodes: however many agents want it at the same moment, one gets it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from agent.errors import StandingBy
from agent.store.records import Records
from agent.tracker.node_entry import SharedLease, lease_uuid
from tests.support.store_place import Place
from tests.support.tracking import Time

NAME, SECONDS, AGENTS = "nodes of a rack", 300.0, 6


def test_of_agents_that_ask_at_the_same_moment_one_gets_it(place: Place) -> None:
    with place.open() as store:
        records, time = Records(store), Time()
        agents = {
            f"host-{number}": SharedLease(records, f"host-{number}", SECONDS, time)
            for number in range(AGENTS)
        }
        for _ in range(5):
            together = Barrier(AGENTS)

            def ask(host: str, together: Barrier = together) -> str:
                together.wait()
                try:
                    agents[host].hold(NAME)
                except StandingBy as error:
                    return str(error.data["holder"])
                return host

            with ThreadPoolExecutor(AGENTS) as pool:
                holders = set(pool.map(ask, agents))
            (holder,) = holders
            with records.reading() as reading:
                lease = reading.lease(lease_uuid(NAME))
            assert lease is not None
            assert (lease.host, lease.expires_at) == (holder, time() + SECONDS)
            time.pass_by(SECONDS)


def test_it_is_written_only_when_a_third_of_it_is_over(place: Place) -> None:
    with place.open() as store:
        records, time = Records(store), Time()
        mine = SharedLease(records, "mine", SECONDS, time)

        def version() -> int:
            with records.reading() as reading:
                lease = reading.lease(lease_uuid(NAME))
            return 0 if lease is None else lease.version

        versions = []
        for _ in range(6):
            mine.hold(NAME)
            versions.append(version())
            time.pass_by(SECONDS / 6 + 0.1)
        assert versions == [1, 1, 2, 2, 3, 3]


def test_looking_takes_nothing_and_letting_go_takes_nothing_from_others(place: Place) -> None:
    with place.open() as store:
        records, time = Records(store), Time()
        mine, other = (SharedLease(records, host, SECONDS, time) for host in ("mine", "other"))
        mine.hold(NAME, dry_run=True)
        other.hold(NAME)
        with pytest.raises(StandingBy, match="host other manages nodes of a rack"):
            mine.hold(NAME, dry_run=True)
        mine.release()
        with pytest.raises(StandingBy):
            mine.hold(NAME)
        other.release()
        mine.hold(NAME)
        # Too late for one who was held up.
        with pytest.raises(StandingBy):
            other.hold(NAME)


def test_a_clock_that_was_set_back_does_not_make_a_lease_longer(place: Place) -> None:
    with place.open() as store:
        records, time = Records(store), Time()
        mine = SharedLease(records, "mine", SECONDS, time)
        mine.hold(NAME)
        time.pass_by(-3600)
        mine.hold(NAME)
        with records.reading() as reading:
            lease = reading.lease(lease_uuid(NAME))
        assert lease is not None
        assert lease.expires_at == time() + SECONDS
