"""The checks of a driver: a sound driver keeps every promise, and each broken driver breaks exactly
the one that it was made to break.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agent.conformance import trial
from agent.conformance.check import CHECKS
from agent.conformance.suite import Conformance, check_conformance
from agent.driver.interface import HostContext
from agent.errors import DriverError, NotReady
from agent.model.facts import HostFacts
from tests.support.sound_driver import NAMES, SoundDriver
from tests.unit.conformance.broken_drivers import BROKEN
from tests.unit.drivers.fakes import configured


def check(make: Callable[[], Any], *, seconds: float = 60, **more: Any) -> Conformance:
    conf = configured()
    for name in ("start_deadline", "nodes_deadline", "facts_deadline"):
        conf.set_override(name, seconds, group="compute")
    return check_conformance("tried", make, conf, **more)


def states(found: Conformance, state: str) -> list[str]:
    return [promise.check.name for promise in found.promises if promise.state == state]


def details(found: Conformance, name: str) -> list[str]:
    (promise,) = (promise for promise in found.promises if promise.check.name == name)
    return [breach.detail for breach in promise.breaches]


def test_a_sound_driver_keeps_every_promise():
    found = check(SoundDriver)
    assert [promise for promise in found.promises if promise.state == "broken"] == []
    assert states(found, "unchecked") == []
    assert states(found, "not-applicable") == ["update_provider_tree"]
    assert (found.listed, list(found.checked), list(found.notes)) == (2, list(NAMES), [])


@pytest.mark.parametrize(
    ("name", "driver"),
    [
        pytest.param(name, driver, id=f"{name}-{driver.__name__}")
        for name, drivers in BROKEN.items()
        for driver in drivers
    ],
)
def test_a_broken_driver_breaks_exactly_the_promise_that_it_breaks(monkeypatch, name, driver):
    if name == "subscribe-lock":
        monkeypatch.setattr(trial, "LOCK_WAIT", 0.5)
    found = check(driver)
    assert states(found, "broken") == [name], [
        promise for promise in found.promises if promise.state == "broken"
    ]


def test_every_check_has_a_driver_that_breaks_it():
    assert set(BROKEN) == {check.name for check in CHECKS}
    assert len({check.name for check in CHECKS}) == len(CHECKS)


class InNovasStyle(SoundDriver):
    """Shapes its whole tree."""

    def update_provider_tree(self, tree: Any, nodename: str, allocations: Any = None) -> None:
        tree.update_inventory(nodename, {"VCPU": {"total": 4, "max_unit": 4}})
        self.put_licences(tree, 5)

    def shape(self, tree: Any, facts: Any, allocations: Any) -> None:
        raise AssertionError("the agent does not call it")


def test_a_driver_in_novas_style_is_checked_by_its_own_method():
    found = check(InNovasStyle)
    assert states(found, "broken") == states(found, "unchecked") == []
    assert states(found, "not-applicable") == ["shape", "shape-pure"]


@pytest.mark.parametrize("method", ["nodes", "facts", "is_node_deleted", "shape", "mark", "lease"])
def test_a_call_that_hangs_is_a_broken_promise_and_is_made_once(method):
    released, calls = threading.Event(), []

    def hang(self: SoundDriver, *_args: Any) -> Any:
        if self.host is None:
            raise NotReady("not started")
        calls.append(1)
        released.wait()

    begun = time.monotonic()
    found = check(type("Hanging", (SoundDriver,), {method: hang}), seconds=3)
    released.set()
    assert states(found, "broken") == [method]
    assert details(found, method)[0].endswith("did not answer within 3 s and was abandoned")
    assert any("it hung" in promise.note for promise in found.promises)
    # once on each of the two instances, and for nodes once by the listener
    assert len(calls) <= 3
    assert time.monotonic() - begun < 60


def test_an_exception_is_told_with_the_last_line_of_its_traceback():
    class Raises(SoundDriver):
        def facts(self, name: str) -> HostFacts:
            assert self.started
            return self.described(name, no_such_field=1)

    (detail,) = details(check(Raises), "facts")
    assert "facts raised TypeError: " in detail
    assert "no_such_field" in detail
    assert "sound_driver.py:" in detail
    assert detail.endswith("in described)")


def test_a_node_without_facts_is_a_note_and_the_others_are_checked():
    class OneFails(SoundDriver):
        def facts(self, name: str) -> HostFacts:
            if name == NAMES[0]:
                raise DriverError("no resource class", "give it one")
            return self.described(name, memory_mib=-1)

    found = check(OneFails)
    assert states(found, "broken") == ["facts-types"]
    assert list(found.notes) == ["node-1: facts: no resource class (give it one)"]
    (promise,) = (one for one in found.promises if one.check.name == "facts-types")
    assert [breach.node for breach in promise.breaches] == ["node-2"]


def test_incomplete_facts_are_a_note():
    class Incomplete(SoundDriver):
        def facts(self, name: str) -> HostFacts:
            return self.described(name, incomplete={"pci": "lspci hangs"})

    found = check(Incomplete)
    assert states(found, "broken") == []
    assert list(found.notes) == [f"{name}: pci is not complete: lspci hangs" for name in NAMES]


def test_what_cannot_be_started_is_an_error():
    class Away(SoundDriver):
        def start(self, host: HostContext) -> None:
            raise NotReady("the backend is away", "start it")

    with pytest.raises(NotReady, match="the backend is away"):
        check(Away)


def test_a_second_start_that_fails_does_not_hide_what_was_found_before():
    class StartsOnce(SoundDriver):
        def start(self, host: HostContext) -> None:
            if not host.read_only:
                raise NotReady("the backend is away", "start it")
            super().start(host)

    found = check(StartsOnce)
    assert states(found, "broken") == []
    assert states(found, "unchecked") == ["restart", "instances-nodes"]
    assert list(found.notes) == ["start: the backend is away (start it)"]


class ManyNodes(SoundDriver):
    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        namespace = uuid.UUID(self.started.identity)
        return {str(uuid.uuid5(namespace, str(count))): f"node-{count}" for count in range(101)}

    def is_node_deleted(self, name: str) -> bool:
        return not self.started


@pytest.mark.parametrize(("every_node", "checked"), [(False, 17), (True, 101)])
def test_of_many_nodes_a_sample_is_checked_unless_all_are_wanted(every_node, checked):
    found = check(ManyNodes, every_node=every_node)
    assert states(found, "broken") == []
    assert (found.listed, len(found.checked)) == (101, checked)
