"""The conformance suite in a process of its own: what a driver does to its process is told by name,
the rest is unchecked, and the process that asked goes on.
"""

import ctypes
import errno
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.driver.conformance import apart
from agent.driver.conformance.apart import check_apart
from agent.driver.conformance.check import Conformance
from agent.driver.conformance.trial_settings import CallDeadlines, TrialSettings
from agent.driver.interface import HostContext
from agent.errors import AgentError, DriverError, NotReady
from agent.model.facts import HostFacts
from tests.support.sound_driver import SoundDriver
from tests.unit.driver import broken_drivers
from tests.unit.driver.test_conformance import core, details, states


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., Conformance]:
    def checked(make: Callable[[], Any], seconds: float = 60) -> Conformance:
        return check_apart(
            TrialSettings(
                "tried",
                make,
                HostContext("host-1", str(uuid.uuid4()), tmp_path),
                CallDeadlines(*[seconds] * 4),
                core,
                lambda listed: listed,
            )
        )

    return checked


def test_a_sound_driver_keeps_every_promise(check):
    found = check(SoundDriver)
    assert states(found, "broken") == states(found, "unchecked") == []
    assert (found.listed, [*found.checked], [*found.notes]) == (2, ["node-1", "node-2"], [])


@pytest.mark.parametrize(
    ("driver", "text"),
    [
        ("Exits", "the process ended with exit code 3 in facts() of node node-1"),
        ("KillsItself", "the process was ended by SIGKILL in is_node_deleted() of node node-1"),
        ("EndsFromAThreadOfItsOwn", "the process ended with exit code 5 in stop()"),
        (
            "ComesBackTwice",
            "os.fork() in is_node_deleted() of node node-1: a copy of the agent came back from it",
        ),
        ("ClosesAllFiles", "all files of the process were closed in facts() of node node-1"),
    ],
)
def test_the_end_of_the_process_is_told_with_the_call(check, driver, text):
    found = check(getattr(broken_drivers, driver))
    assert details(found, "process-end") == [text]


def test_an_end_of_the_process_leaves_what_was_found_before(check):
    class Fails(broken_drivers.Exits):
        def option_warnings(self) -> Any:
            return "one text"

    found = check(Fails)
    assert states(found, "broken") == ["process-end", "option-warnings-lines"]
    (facts,) = (promise for promise in found.promises if promise.check.name == "facts-types")
    assert (facts.state, facts.note) == (
        "unchecked",
        "see the check process-end: the process ended before",
    )


def test_a_constructor_that_hangs_is_a_broken_promise(check):
    class Hangs(SoundDriver):
        def __init__(self, conf: Any = None) -> None:
            time.sleep(600)

    found = check(Hangs, seconds=1)
    assert states(found, "broken") == ["constructor"]
    assert details(found, "constructor") == [
        "the constructor did not end within 1 s, and the process was ended"
    ]
    assert states(found, "held") == []


def test_a_call_that_keeps_the_interpreter_is_a_broken_promise(check):
    class Keeps(SoundDriver):
        def facts(self, name: str) -> HostFacts:
            ctypes.PyDLL(None).sleep(600)
            return super().facts(name)

    found = check(Keeps, seconds=1)
    assert states(found, "broken") == ["process-end"]
    assert details(found, "process-end") == [
        "facts() of node node-1 did not end within 1 s, and the process was ended"
    ]


def test_a_process_that_is_stopped_is_a_broken_promise(check):
    class Stops(SoundDriver):
        def facts(self, name: str) -> HostFacts:
            os.kill(os.getpid(), signal.SIGSTOP)
            return super().facts(name)

    assert states(check(Stops, seconds=1), "broken") == ["process-end"]


class _Endless(Mapping[str, str]):
    def __iter__(self) -> Iterator[str]:
        while True:
            yield "00000000-0000-4000-8000-000000000000"

    def __getitem__(self, key: str) -> str:
        return "node-1"

    def __len__(self) -> int:
        return 1


class _Growing(_Endless):
    def __iter__(self) -> Iterator[str]:
        while True:
            yield str(uuid.uuid4())

    def __getitem__(self, key: str) -> str:
        return "node-1" * 10_000


class _Raising(_Endless):
    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no answer any more")


def listing(answer: Mapping[str, str]) -> type[SoundDriver]:
    class Lists(SoundDriver):
        def nodes(self, refresh: bool = False) -> Mapping[str, str]:
            return answer if self.host else super().nodes(refresh)

    return Lists


def test_an_answer_without_end_is_a_broken_promise(check, monkeypatch):
    monkeypatch.setattr(apart, "EXAMINATION", 1.0)
    found = check(listing(_Endless()))
    assert states(found, "broken") == ["process-end"]
    assert details(found, "process-end") == [
        "what nodes() answered could not be examined within 1 s: it has no end, or asking it hangs;"
        " the process was ended"
    ]


@pytest.mark.parametrize(
    ("answer", "name"), [(_Growing(), "MemoryError"), (_Raising(), "RuntimeError")]
)
def test_an_answer_that_cannot_be_examined_breaks_its_promise(check, monkeypatch, answer, name):
    # Beyond what this process has, which the process of the check begins with.
    most = psutil.Process().memory_info().data + (300 << 20)
    monkeypatch.setattr(apart, "MOST_MEMORY", most)
    found = check(listing(answer))
    assert "nodes-mapping" in states(found, "broken"), details(found, "process-end")
    (detail,) = details(found, "nodes-mapping")
    assert detail.startswith(f"the answer cannot be examined: {name}")


@pytest.mark.parametrize(
    ("driver", "text"),
    [
        ("GoesElsewhere", "start(): the working directory was changed from "),
        ("ClosesTheUmask", "facts(): the umask was changed from "),
        ("SetsAVariable", "start(): the environment variable http_proxy was set"),
        (
            "TakesSigterm",
            "the constructor: the handler of SIGTERM was changed from SIG_DFL to SIG_IGN",
        ),
        ("ReplacesSockets", "nodes(): socket.getaddrinfo was taken away"),
        ("LowersALimit", "start(): the limit RLIMIT_NOFILE was changed from "),
        ("TakesTheRootLogger", "mark(): the level of the root logger was changed from "),
        ("LeavesAThread", "the thread 'poller' runs on, and keeps the process from ending"),
    ],
)
def test_a_change_of_the_process_is_told_with_the_call_and_ends_with_the_suite(check, driver, text):
    before = Path.cwd(), os.umask(0o22), signal.getsignal(signal.SIGTERM)
    found = check(getattr(broken_drivers, driver))
    first = details(found, "process-state")[0]
    assert first.startswith(text)
    assert (Path.cwd(), os.umask(before[1]), signal.getsignal(signal.SIGTERM)) == (
        before[0],
        0o22,
        before[2],
    )


def test_no_value_of_the_environment_is_shown(check, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://user:secret-1@proxy")

    class Changes(SoundDriver):
        def start(self, host: HostContext) -> None:
            super().start(host)
            os.environ["http_proxy"] = "http://user:secret-2@proxy"

    (text,) = details(check(Changes), "process-state")
    assert text == "start(): the environment variable http_proxy was replaced"


def test_what_cannot_be_started_is_an_error_of_the_same_code(check):
    class Away(SoundDriver):
        def start(self, host: HostContext) -> None:
            raise NotReady("the backend is away", "start it")

    with pytest.raises(AgentError) as raised:
        check(Away)
    error = raised.value
    assert (error.code, error.message, error.remedy) == (
        NotReady.code,
        "the backend is away",
        "start it",
    )


def test_a_process_that_cannot_be_started_is_an_error(check, monkeypatch):
    def fails() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fails)
    with pytest.raises(DriverError, match="no process could be started for it: Resource"):
        check(SoundDriver)


def test_nothing_is_left_of_the_programs_that_the_driver_started(check, tmp_path):
    class Starts(SoundDriver):
        def start(self, host: HostContext) -> None:
            super().start(host)
            if (started := os.fork()) == 0:
                time.sleep(600)
            (tmp_path.parent / "started.pid").write_text(str(started))

    check(Starts)
    left = int((tmp_path.parent / "started.pid").read_text())
    for _ in range(100):
        if not Path(f"/proc/{left}").exists() or "zombie" in _status(left):
            return
        time.sleep(0.05)
    raise AssertionError(_status(left))


def _status(process: int) -> str:
    try:
        return Path(f"/proc/{process}/status").read_text()
    except OSError:
        return "zombie"
