"""A claim whose cells and devices take long to find holds up the claims that come to its node after
it, and nobody else: neither other nodes nor the store.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from agent.errors import Undecided
from agent.model.instance import Flavor
from agent.model.node_records import Claim, RecordChanges
from agent.numa.fit import Fit, fit
from agent.tracker import reserving
from agent.tracker.errors import InstanceElsewhere, ResourcesUndecided
from tests.support.tracking import F1, FN, Host, World, uuid_of

END = 60.0


class SlowFit:
    """Fits, each after ``before`` was called with how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self.before: Callable[[int], object] = lambda _number: None

    def __call__(self, *args: Any, **more: Any) -> Fit:
        self.count += 1
        self.before(self.count)
        return fit(*args, **more)


class Gate:
    """Whoever comes waits until it is opened; ``reached`` once somebody has."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, _number: int) -> None:
        self.reached.set()
        assert self.opened.wait(END)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowFit:
    one = SlowFit()
    monkeypatch.setattr(reserving, "fit", one)
    return one


@contextmanager
def waiting(slow: SlowFit, *claims: Callable[[], Claim]) -> Iterator[list[Future[Claim]]]:
    """Claims of which the first has come to its fit, which does not end before the block."""
    gate = Gate()
    slow.before = gate
    with ThreadPoolExecutor(len(claims)) as pool, ExitStack() as stack:
        stack.callback(gate.opened.set)
        begun = [pool.submit(claims[0])]
        assert gate.reached.wait(END)
        begun += [pool.submit(claim) for claim in claims[1:]]
        yield begun
        slow.before = lambda _number: None


def until_waiting(host: Host, number: int) -> None:
    """Wait until so many operations wait for the lock of the host's node."""
    until = time.monotonic() + END
    while (found := len(host.usage_step._entries[host.node].lock._waiting)) < number:
        assert time.monotonic() < until
        time.sleep(0.001)
    assert found == number


def claim(host: Host, name: str, flavor: Flavor, **more: Any) -> Claim:
    return host.claim(name, flavor, **more).claim


def test_claims_of_other_nodes_do_not_wait_for_a_slow_fit(world: World, slow: SlowFit) -> None:
    here, there = world.numa("HN"), world.plain("HA")
    with waiting(slow, lambda: claim(here, "n1", FN)) as (first,):
        claim(there, "a1", F1)
        assert not first.done()
    assert first.result(END).cells


def test_a_claim_waits_for_the_fits_that_came_to_its_node_before_it_and_for_no_other(
    world: World, slow: SlowFit
) -> None:
    host, first, last = world.numa("HN"), Gate(), Gate()
    slow.before = lambda number: (first if number == 1 else last)(number)
    with ThreadPoolExecutor(3) as pool, ExitStack() as stack:
        stack.callback(first.opened.set)
        stack.callback(last.opened.set)
        begun = []
        for number, (name, flavor) in enumerate((("n1", FN), ("n2", F1), ("n3", FN))):
            begun.append(pool.submit(claim, host, name, flavor))
            assert first.reached.wait(END)
            until_waiting(host, number)
        assert not any(one.done() for one in begun)
        first.opened.set()
        assert not begun[1].result(END).cells
        assert last.reached.wait(END)
        assert not begun[2].done()
    assert begun[0].result().cells
    assert begun[2].result().cells
    assert slow.count == 2


def test_a_claim_whose_node_another_process_changes_during_its_fit_is_fitted_anew(
    world: World, slow: SlowFit
) -> None:
    host = world.numa("HN")

    def change(number: int) -> None:
        if number == 1:
            with host.records.transaction([host.node]) as transaction:
                node = transaction.node(host.node)
                assert node is not None
                transaction.write(RecordChanges(nodes=(node,)))

    slow.before = change
    assert claim(host, "n1", FN).cells
    assert slow.count == 2


def test_a_claim_that_was_made_elsewhere_while_its_fit_lasted_is_seen(
    world: World, slow: SlowFit
) -> None:
    host, other = world.numa("HN"), world.plain("HA")
    with waiting(slow, lambda: claim(host, "n1", FN)) as (first,):
        claim(other, "n1", F1, id=uuid_of("another"))
    assert isinstance(first.exception(END), InstanceElsewhere)
    assert not host.tracker.view(host.node).claims


def test_a_fit_that_is_given_up_is_told_and_leaves_no_trace(
    world: World, slow: SlowFit, caplog: pytest.LogCaptureFixture
) -> None:
    host = world.numa("HN")

    def give_up(_number: int) -> None:
        raise Undecided(
            "no answer after 10000 branches of the search", "another host, or fewer guest cells"
        )

    slow.before = give_up
    with caplog.at_level(logging.WARNING), pytest.raises(ResourcesUndecided) as caught:
        claim(host, "n1", FN)
    assert caught.value.code == "resources.undecided"
    assert "not decided" in caught.value.message
    assert "10000 branches" in caplog.text
    assert not host.tracker.view(host.node).claims
    slow.before = lambda _number: None
    assert claim(host, "n1", FN).cells
