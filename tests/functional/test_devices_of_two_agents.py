"""Guests contend for the two devices of each of two hosts while their agents are killed: a device
never has two holders.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.functional.cloud import Cloud, cloud_on, killing
from tests.support.compute_host import GPUS, PATIENCE, ComputeHost
from tests.support.http_placement import HttpPlacement
from tests.support.orchestrator import PAUSE, WITH_GPU, Guest
from tests.support.postgresql import PostgreSQL

pytestmark = pytest.mark.long

CONTENDERS, TURNS = 6, int(os.environ.get("DEVICE_TURNS", "3"))


class Contest:
    """Who has which device, as far as those know it who have one."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._holders: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()
        self.waited = 0

    def turns(self, dice: random.Random) -> None:
        """One contender: has a guest built with a device, looks that it keeps it for a while, and
        gives it up.
        """
        for _ in range(TURNS):
            guest = self._winner(dice)
            owner, (address,) = guest.owner, guest.devices()
            assert owner is not None
            self._taken(owner, address, guest)
            time.sleep(dice.uniform(0, 0.3))
            assert guest.devices() == [address]
            held = guest.held()
            assert {self._name(owner, uuid) for uuid in held} == {
                owner.node,
                f"{owner.node}_{address}",
            }
            self._given_up(owner, address, guest)
            guest.end()

    def _winner(self, dice: random.Random) -> Guest:
        """A guest that has got a device on one host or the other."""
        guest, end = self.cloud.guest(WITH_GPU, dice), time.monotonic() + PATIENCE
        while not guest.tries(dice.choice(self.cloud.both)):
            self.waited += 1
            assert time.monotonic() < end, "nobody gave a device up"
            time.sleep(PAUSE)
        return guest

    def _taken(self, host: ComputeHost, address: str, guest: Guest) -> None:
        assert address in GPUS
        with self._lock:
            assert (host.name, address) not in self._holders, (
                f"{address} of {host.name} has two holders"
            )
            self._holders[host.name, address] = guest.uuid

    def _given_up(self, host: ComputeHost, address: str, guest: Guest) -> None:
        with self._lock:
            assert self._holders.pop((host.name, address)) == guest.uuid

    def _name(self, host: ComputeHost, provider: str) -> str:
        return next(
            str(one["name"])
            for one in self.cloud.placement.other.tree(host.identity)
            if one["uuid"] == provider
        )


@pytest.fixture
def cloud(http_placement: HttpPlacement, postgresql: PostgreSQL, tmp_path: Path) -> Iterator[Cloud]:
    with cloud_on(tmp_path, http_placement, postgresql) as found:
        yield found


@pytest.mark.timeout(0 if TURNS > 3 else 900)
def test_a_device_has_one_holder_whoever_is_killed_when(cloud: Cloud) -> None:
    contest, dice = Contest(cloud), random.Random(4)
    with ThreadPoolExecutor(CONTENDERS) as pool:
        under_way = [
            pool.submit(contest.turns, random.Random(number)) for number in range(CONTENDERS)
        ]
        killed = killing(cloud, dice, under_way)
        for one in under_way:
            one.result()
    assert killed, "nobody was killed in time"
    assert contest.waited, "nobody had to wait for another"
    cloud.is_exact([])
