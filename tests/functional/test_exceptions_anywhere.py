"""One daemon, and in each step of its work each exception once: it tells of it, goes on, and the
next pass mends what was left.

Everything is in this process: the real loop, core, store and local API, and the real Placement; the
test is systemd and the operator. EVERY_EXCEPTION=1 raises every exception in every step.
"""

import contextlib
import http.client
import importlib
import inspect
import json
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from waitress.channel import HTTPChannel

import agent.audit.fleet
import agent.audit.flushing
import agent.audit.planning
import agent.audit.reading
import agent.audit.run
import agent.audit.shape
import agent.service.daemon
from agent.api.local_api import WORKERS, LocalServer
from agent.api.metrics import Metrics
from agent.api.service import Service
from agent.api.socket_file import UnixConnection
from agent.bootstrap import components
from agent.cli.configuration import load
from agent.cli.main import run
from agent.cli.parser import parse
from agent.driver.worker import DriverWorker
from agent.errors import DriverError
from agent.placement.client import PlacementClient
from agent.placement.exchange import Exchange
from agent.placement.flush import Flush
from agent.placement.node_state import NodePlacementState
from agent.placement.server import Server
from agent.placement.transport import Timeouts, Transport
from agent.service import audit_queue, background, passes, runtime
from agent.service.daemon import Daemon
from agent.service.log_writer import ProblemLog
from agent.store.records import Records
from agent.store.store import Store
from agent.tracker.usage_step import UsageStep
from drivers.fake.file import FileDriver
from drivers.libvirt.binding import Debouncer
from tests.support.ini import write_config
from tests.support.local_api import api_here
from tests.unit.test_daemon import Manager, Operator

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000e001"
LAYOUTS = (
    "  inventories:\n    VCPU: {total: 8}\n",
    (
        "  inventories:\n    VCPU: {total: 12}\n  traits: [CUSTOM_SEEN]\n- name: $NODE_CHILD\n  "
        "inventories:\n    VGPU: {total: 2}\n"
    ),
)
EXCEPTIONS = (MemoryError, RecursionError, KeyError)
EVERY = bool(os.environ.get("EVERY_EXCEPTION"))
GENEROUS = 120
"""Seconds in which the daemon has to get over one of them."""


class Step(NamedTuple):
    """Where the exception is raised, and what makes the daemon come by: a ``change`` of the host, a
    guest's ``claim``, an ``audit`` or a ``reload`` asked for, or a ``reread`` of everything, which
    a reload brings too.
    """

    owner: Any
    name: str
    by: str = "change"


STEPS = {
    "the list of nodes": Step(agent.audit.fleet, "managed_nodes"),
    "choosing the nodes": Step(agent.audit.fleet, "chosen_nodes"),
    "who has the lease": Step(agent.audit.fleet.Fleet, "_take_leases"),
    "the audit's own place": Step(agent.audit.fleet.Fleet, "_audit_of"),
    "the report of a pass": Step(agent.audit.fleet, "Report"),
    "tidying up": Step(UsageStep, "remove_ended_records"),
    "a driver that answers": Step(FileDriver, "nodes"),
    "facts": Step(FileDriver, "facts"),
    "facts looked at": Step(agent.audit.reading, "node_facts"),
    "a shape": Step(FileDriver, "shape"),
    "what is promised": Step(UsageStep, "audit"),
    "what others promised": Step(UsageStep, "set_listed_nodes"),
    "a transaction": Step(Records, "transaction"),
    "what is published": Step(UsageStep, "mark_published"),
    "a first look at Placement": Step(Server, "connect"),
    "the mirror": Step(NodePlacementState, "refresh"),
    "a read": Step(PlacementClient, "inventories", by="reread"),
    "the desired tree": Step(agent.audit.shape, "complete_tree"),
    "the operator's files": Step(agent.audit.shape, "put_operators_files"),
    "the merge": Step(agent.audit.shape.Merge, "target"),
    "the allocations": Step(agent.audit.planning, "judge"),
    "the plan": Step(agent.audit.shape, "make_plan"),
    "writing down what will be ours": Step(NodePlacementState, "intend"),
    "the flush": Step(Flush, "run"),
    "making a provider": Step(PlacementClient, "create_provider"),
    "writing inventories": Step(PlacementClient, "set_inventories"),
    "writing traits": Step(PlacementClient, "set_traits"),
    "deleting a provider": Step(PlacementClient, "delete_provider"),
    "sending": Step(Exchange, "send_once"),
    "an answer": Step(Exchange, "decode"),
    "what came of it": Step(NodePlacementState, "record"),
    "over-commitment": Step(agent.audit.flushing, "shrunk_below_usage"),
    "a state": Step(agent.audit.run.AuditRun, "state"),
    "a node's report": Step(agent.audit.run.AuditRun, "report"),
    "saving the mirror": Step(Store, "save_view"),
    "the journal": Step(Store, "save_journal"),
    "a disk that is looked at": Step(Store, "check_writable"),
    "monitors": Step(runtime.Monitors, "poll"),
    "who serves": Step(Service, "set_context"),
    "news": Step(ProblemLog, "log_changes"),
    "the line for systemd": Step(passes, "summary"),
    "what the API shows": Step(Service, "take_report"),
    "when it is due": Step(audit_queue.Schedule, "plan_after_success"),
    "publishing": Step(agent.audit.fleet.Fleet, "run", by="claim"),
    "what waits to be published": Step(audit_queue.DirtyNodes, "take", by="claim"),
    "an audit that was asked for": Step(agent.audit.fleet.Fleet, "run", by="audit"),
    "the answer to who asked": Step(passes, "report_document", by="audit"),
    "reading the configuration": Step(agent.service.daemon, "load", by="reload"),
    "a new fleet": Step(runtime, "Runtime", by="reload"),
    "who may do what": Step(runtime.Access, "from_options", by="reload"),
    "a driver's start": Step(FileDriver, "start", by="reload"),
    "a driver's end": Step(FileDriver, "stop", by="reload"),
}


def cases() -> Iterator[tuple[str, type[BaseException]]]:
    """In an ordinary run one exception a step, in turn."""
    for number, title in enumerate(STEPS):
        yield from (
            (title, exception)
            for exception in (EXCEPTIONS if EVERY else [EXCEPTIONS[number % len(EXCEPTIONS)]])
        )


class Trap:
    """Raises an exception where a step begins, once after it was set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set_for: str | None = None
        self.exception: type[BaseException] = KeyError
        for title, step in STEPS.items():
            monkeypatch.setattr(step.owner, step.name, self._wrapped(title, step), raising=False)

    def _wrapped(self, title: str, step: Step) -> Any:
        original = inspect.getattr_static(step.owner, step.name)
        called = original.__func__ if isinstance(original, classmethod | staticmethod) else original

        def wrapped(*args: Any, **options: Any) -> Any:
            if self.set_for == title:
                self.set_for = None
                raise self.exception("in " + title)
            return called(*args, **options)

        wrapped.__name__ = step.name
        return (
            type(original)(wrapped) if isinstance(original, classmethod | staticmethod) else wrapped
        )


class Walk:
    """Called whenever the daemon listens: sets a trap, waits until somebody fell into it and all is
    well again, sets the next.
    """

    def __init__(
        self,
        folder: Path,
        trap: Trap,
        manager: Manager,
        placement: Any,
        log: pytest.LogCaptureFixture,
    ) -> None:
        self.folder, self.trap, self.manager, self.placement, self.log = (
            folder,
            trap,
            manager,
            placement,
            log,
        )
        self.daemon: Daemon
        self.left = list(cases())
        self.layout, self.done, self.faults = 0, 0, list[str]()
        # Those of APIs that other tests have.
        self.others = kinds_of_threads()["api"]
        self._now: tuple[str, type[BaseException]] | None = None
        self._since, self._told, self._logged = time.monotonic(), 0, 0
        self._asked, self._after, self._fallen = "", 0, False

    def __call__(self, operator: Operator) -> None:
        try:
            self._step(operator)
        except Exception as error:  # noqa: BLE001 - because the daemon would survive it
            self.faults.append(repr(error))
            operator.stop = True

    def _step(self, operator: Operator) -> None:
        if not self._fallen and self._now is not None and self.trap.set_for is None:
            # Only what is said from here on says that all is well again.
            self._fallen, self._after = True, len(self.manager.told)
        well = self._settled()
        if self._now is None and well:
            self._next(operator)
        elif self._fallen and well and self._now is not None:
            self._look_back(*self._now)
            self._now = None
        elif self._now is not None and well and STEPS[self._now[0]].by == "change":
            # Not every change of the host makes every step.
            self._change()
        elif time.monotonic() - self._since > GENEROUS:
            last = [text for kind, text in self.manager.told if kind in ("ready", "status")][-1:]
            self.faults.append(
                f"{self._now}: after {GENEROUS} s "
                f"{'nobody came by' if self.trap.set_for else 'not well'}: {last}"
            )
            operator.stop = True
        operator.stop |= bool(self.faults) or (self._now is None and not self.left)

    def _settled(self) -> bool:
        """Whether the last thing that was said is that all is as it should be, and it is."""
        last = [
            text for kind, text in self.manager.told[self._after :] if kind in ("ready", "status")
        ][-1:]
        if not last or not last[0].startswith("ready: 1 in-sync"):
            return False
        inventories = {
            one["name"]: {name: had["total"] for name, had in one["inventories"].items()}
            for one in self.placement.dump()["providers"].values()
        }
        return (
            inventories
            == ({"node-a": {"VCPU": 8}}, {"node-a": {"VCPU": 12}, "node-a_CHILD": {"VGPU": 2}})[
                self.layout
            ]
        )

    def _next(self, operator: Operator) -> None:
        if not self.left:
            return
        self._now = title, exception = self.left.pop(0)
        self._fallen, self._after = False, len(self.manager.told)
        self._since, self._told, self._logged = (
            time.monotonic(),
            len(self.manager.told),
            len(self.log.records),
        )
        self.trap.exception, self.trap.set_for = exception, title
        by = STEPS[title].by
        if by == "change":
            self._change()
        elif by == "claim":
            self.daemon._passes._dirty_nodes.add(ROOT)
        elif by == "audit":
            self._asked = self.daemon._service.audits.request(["node-a"], dry_run=False)
        operator.reload = by in ("reload", "reread")

    def _change(self) -> None:
        self.layout, self._after = 1 - self.layout, len(self.manager.told)
        write_layout(self.folder, self.layout)

    def _look_back(self, title: str, exception: type[BaseException]) -> None:
        kind, what = exception.__name__, f"{title}, {exception.__name__}"
        said = [text for _, text in self.manager.told[self._told :]]
        told = [
            text
            for text in said
            if kind in text
            and (text.startswith("degraded: ") or ": the new configuration is refused: " in text)
        ]
        logged = [
            one
            for one in self.log.records[self._logged :]
            if kind in one.getMessage() or (one.exc_info and one.exc_info[0] is exception)
        ]
        if not told and STEPS[title].name != "stop":
            self.faults.append(f"{what}: not in the state: {said}")
        if not logged:
            self.faults.append(f"{what}: not in the log")
        status, body = ask(self.folder / "agent.sock", "/healthz")
        if status != 200:
            self.faults.append(f"{what}: /healthz {status} {body!r}")
        nodes = json.loads(ask(self.folder / "agent.sock", "/v1/nodes")[1])
        if [one["state"] for one in nodes["nodes"]] != ["in-sync"]:
            self.faults.append(f"{what}: {nodes}")
        if self._asked:
            if self.daemon._service.audits.wait_for(self._asked, 10).state != "done":
                self.faults.append(f"{what}: who asked was never answered")
            self._asked = ""
        if (serving := kinds_of_threads()["api"] - self.others) != 1:
            self.faults.append(f"{what}: {serving} threads for the API")
        self.done += 1


def kinds_of_threads() -> Counter[str]:
    """How many threads there are of each name, without the numbers that make some of
    them unique; without those of driver calls, which other tests may have left and which end when
    they have been idle for a while.
    """
    names = (thread.name for thread in threading.enumerate())
    return Counter(re.sub(r"\d+", "", name) for name in names if not name.startswith("driver "))


def write_layout(folder: Path, number: int) -> None:
    (folder / "host.new").write_text(f"uuid: {ROOT}\nproviders:\n- name: $NODE\n{LAYOUTS[number]}")
    (folder / "host.new").replace(folder / "host.yaml")


def ask(path: Path, target: str) -> tuple[int, bytes]:
    connection = UnixConnection(path, 30)
    connection.request("GET", target)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


@pytest.mark.long
def test_whatever_is_raised_wherever_the_daemon_tells_of_it_and_the_next_pass_is_in_sync(
    placement, tmp_path, monkeypatch, caplog
):
    config = {
        "DEFAULT": {
            "compute_driver": "fake.file",
            "host": "node-a",
            "state_path": tmp_path / "nova",
        },
        "fake": {"host_file": tmp_path / "host.yaml"},
        "store": {"path": tmp_path / "store"},
        "api": {"socket": tmp_path / "agent.sock"},
        "placement": {"auth_type": "admin_token", "endpoint": placement.url, "token": "t"},
    }
    file = write_config(tmp_path / "agent.conf", config)
    write_layout(tmp_path, 0)
    monkeypatch.setattr(
        components,
        "connect_http",
        lambda _conf, cancelled: Transport(
            placement.adapter(), timeouts=Timeouts(), max_in_flight=1, cancelled=cancelled
        ),
    )
    monkeypatch.setattr(audit_queue, "DEFAULT_INTERVAL", 0.001)
    monkeypatch.setattr(audit_queue, "GATHERING", 0.001)
    monkeypatch.setattr(background, "POLL", 0.01)
    monkeypatch.setattr(passes, "BUG_PAUSE", 0.01)
    monkeypatch.setattr(agent.service.daemon, "load", load, raising=False)
    caplog.set_level(logging.WARNING)
    manager = Manager()
    walk = Walk(tmp_path, Trap(monkeypatch), manager, placement, caplog)

    def reread():
        return agent.service.daemon.load(parse(["--config-file", str(file)]), {})

    walk.daemon = Daemon(
        load(parse(["--config-file", str(file)]), {}),
        reread,
        lambda _conf: None,
        lambda _conf, _usable: None,
        manager,
        Operator(walk),
    )
    walk.daemon.run()
    assert walk.faults == []
    assert walk.done == len(list(cases()))


# --- agent --once ---------------------------------------------------------------------------------

IN_ONCE = (
    "the list of nodes",
    "the audit's own place",
    "the report of a pass",
    "a driver that answers",
    "what is promised",
    "the mirror",
    "the desired tree",
    "the flush",
    "sending",
    "a node's report",
    "the journal",
    "a driver's end",
)


@pytest.mark.long
def test_whatever_is_raised_in_a_run_of_once_is_told_in_one_document_and_the_next_run_is_well(
    placement, tmp_path, monkeypatch, capsys
):
    config = {
        "DEFAULT": {
            "compute_driver": "fake.file",
            "host": "node-a",
            "state_path": tmp_path / "nova",
        },
        "fake": {"host_file": tmp_path / "host.yaml"},
        "store": {"path": tmp_path / "store"},
        "placement": {"auth_type": "admin_token", "endpoint": placement.url, "token": "t"},
    }
    file = write_config(tmp_path / "agent.conf", config)
    monkeypatch.setattr(
        components,
        "connect_http",
        lambda _conf, cancelled: Transport(
            placement.adapter(), timeouts=Timeouts(), max_in_flight=1, cancelled=cancelled
        ),
    )
    monkeypatch.setattr(agent.service.daemon, "load", load, raising=False)
    trap, faults, layouts = Trap(monkeypatch), [], [0]

    def once() -> tuple[int, dict[str, Any]]:
        code = run(["--config-file", str(file), "--once", "--format", "json"])
        said = capsys.readouterr()
        if "Traceback" in said.out:
            faults.append(said.out)
        return code, json.loads(said.out)

    def changed() -> tuple[int, dict[str, Any]]:
        layouts.append(1 - layouts[-1])
        write_layout(tmp_path, layouts[-1])
        return once()

    write_layout(tmp_path, 0)
    assert once()[0] == 0
    for title, exception in (one for one in cases() if one[0] in IN_ONCE):
        trap.exception, trap.set_for = exception, title
        code, document = changed()
        if trap.set_for is not None:
            # That change had no use for the step; the way back has.
            code, document = changed()
        errors = [
            *document["errors"],
            *(error for node in document["nodes"] for error in node["errors"]),
        ]
        kind = exception.__name__
        told = (
            code in (1, 3)
            and document["exit_code"] == code
            and any(kind in one["message"] for one in errors)
        )
        # A driver that does not stop has done its work.
        if trap.set_for is not None or not (told or (code, title) == (0, "a driver's end")):
            faults.append(f"{title}, {kind}: {code} {errors}")
        trap.set_for = None
        again, honest = once()
        if (again, [one["state"] for one in honest["nodes"]]) not in (
            (0, ["in-sync"]),
            (0, ["changed"]),
        ):
            faults.append(
                f"{title}, {kind}, afterwards: {again} {honest['errors']} {honest['nodes']}"
            )
    assert faults == []


# --- the local API --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def api():
    with api_here() as found:
        yield found


@pytest.mark.parametrize("exception", [*EXCEPTIONS, SystemExit])
def test_no_exception_in_a_handler_takes_a_thread_of_the_api_along(exception, api, monkeypatch):
    def raises(*_arguments: Any) -> Any:
        raise exception("in a handler")

    with monkeypatch.context() as patch:
        patch.setattr(Service, "nodes", raises)
        answers = [api.call("GET", "/v1/nodes", checked=False) for _ in range(2 * WORKERS)]
    assert {(one.status, one.json["code"]) for one in answers} == {(500, "agent.bug")}, answers[0]
    assert [api.call("GET", "/v1/nodes").status for _ in range(2 * WORKERS)] == [200] * 2 * WORKERS


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (LocalServer, "maintenance"),
        (HTTPChannel, "received"),
        (Metrics, "count_answer"),
    ],
)
def test_no_exception_beside_a_handler_takes_the_api_along(owner, name, api, monkeypatch):
    def raises(*_arguments: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, raises)
        for _ in range(2 * WORKERS):
            with contextlib.suppress(OSError, http.client.HTTPException):
                api.call("GET", "/v1/nodes", checked=False)
    assert [api.call("GET", "/healthz").status for _ in range(2 * WORKERS)] == [200] * 2 * WORKERS


# --- threads --------------------------------------------------------------------------------------


def test_a_thread_that_an_exception_ends_is_told_in_the_log(caplog):
    def raises() -> None:
        raise KeyError("what nobody foresaw")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", agent.service.daemon._log_end_of_thread)
        thread = threading.Thread(target=raises, name="somebody's\x1b")
        thread.start()
        thread.join()
    (record,) = [one for one in caplog.records if one.levelno == logging.CRITICAL]
    assert record.getMessage() == "the thread somebody's\\x1b was ended by KeyError"
    assert record.exc_info


def test_a_driver_call_for_which_there_is_no_thread_is_an_error_of_the_driver(monkeypatch):
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(
        DriverError, match="driver d: nodes was not called: can't start new thread"
    ) as caught:
        DriverWorker("d").call(FileDriver.nodes, deadline=1)
    assert "TasksMax" in caught.value.remedy


def test_leases_are_kept_after_a_time_that_failed(monkeypatch):
    monkeypatch.setattr(runtime, "KEEP_EVERY", 0.001)
    times, kept = [], threading.Event()

    class Fleet:
        @property
        def leases(self) -> "Fleet":
            return self

        def renew(self) -> None:
            times.append(1)
            if len(times) == 1:
                raise KeyError("once")
            kept.set()

    one = runtime.Runtime.__new__(runtime.Runtime)
    one._fleet = Fleet()
    with one.keep_leases():
        assert kept.wait(30)


def test_guests_that_stop_are_told_of_after_a_time_that_failed():
    told, done = [], threading.Event()

    def tell() -> None:
        told.append(1)
        if len(told) == 1:
            raise MemoryError
        done.set()

    delayed = Debouncer(0.001, tell)
    delayed.put("a")
    delayed.put("b")
    assert done.wait(30)
    delayed.close()


def test_libvirts_event_loop_goes_on_after_an_exception(monkeypatch, caplog):
    turns = []

    class Binding:
        @staticmethod
        def virEventRunDefaultImpl() -> None:
            turns.append(1)
            if len(turns) < 4:
                raise RuntimeError("virEventRunDefaultImpl() failed")
            raise SystemExit

    # The package has the function of the module under the module's name.
    binding = importlib.import_module("drivers.libvirt.binding")
    monkeypatch.setattr(binding, "binding", lambda: Binding)
    monkeypatch.setattr(binding, "PAUSE", 0)
    with pytest.raises(SystemExit):
        binding._run()
    assert len([one for one in caplog.records if one.exc_info]) == 1
