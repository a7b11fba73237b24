"""One driver on trial: its calls, each with the deadline that the agent gives it, and how each call
ended.
"""

import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from inspect import getattr_static
from typing import Any

from oslo_config import cfg

from agent.conformance.check import Unanswered
from agent.driver.answers import Nodes, faults_of
from agent.driver.interface import (
    STOP_DEADLINE,
    Allocations,
    ChecksConfiguration,
    CountsHangingCalls,
    Driver,
    HostContext,
    LooksAtInstances,
    MarksNodes,
    NeedsLease,
    ReportsCapabilities,
    ShapesTree,
    TellsOfChanges,
    UpdatesProviderTree,
    WarnsOfOptions,
)
from agent.driver.worker import DriverWorker, start_thread
from agent.errors import AgentError, DriverTimeout, NotReady, ReshapeNeeded
from agent.model.facts import HostFacts
from agent.model.names import is_uuid, masked, normal_uuid, printable
from agent.model.provider_tree import ProviderTree

METHODS: Mapping[str, Any] = {
    "start": None,
    "stop": None,
    "nodes": None,
    "facts": None,
    "is_node_deleted": None,
    "check": ChecksConfiguration,
    "option_warnings": WarnsOfOptions,
    "shape": ShapesTree,
    "update_provider_tree": UpdatesProviderTree,
    "capabilities_as_traits": ReportsCapabilities,
    "subscribe": TellsOfChanges,
    "hanging": CountsHangingCalls,
    "mark": MarksNodes,
    "lease": NeedsLease,
    "with_instances": LooksAtInstances,
}
"""The methods of the interface, and the protocol of each that not every driver has."""

TRIES = 5
"""How often a call is made that raises NotReady."""
PAUSE = 0.1
"""Seconds between these calls."""
LOCK_WAIT = 5.0
"""Seconds after which a call inside of ``changed`` is taken for one that waits for a lock."""
# How many calls may hang at once: more than there are methods, because a call that hung is not made
# again on the same instance.
_STUCK = 100


class ReshapeAsked(Unanswered):
    """The driver raised ReshapeNeeded."""


class _Misbehaved(Exception):
    """A call raised what is no error of the agent. Its text shows it."""


@dataclass(slots=True)
class CallRecord:
    """How the calls of one method ended."""

    answered: int = 0
    not_ready: int = 0
    faults: list[str] = field(default_factory=list)
    """Calls that hung, or raised what is no error of the agent."""
    errors: list[str] = field(default_factory=list)
    """Errors of the agent that the driver raised."""


class ChangeListener:
    """Notes the changes that a driver reports, and for the first whether another thread can call
    the driver meanwhile.

    :param ask: makes a call of the driver.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._probed = threading.Event()
        self.names: list[object] = []
        """What ``changed`` was called with."""
        self.waits = False
        """Whether a call of the driver did not return while ``changed`` ran."""

    def changed(self, name: str) -> None:
        """Note that the node called ``name`` has changed."""
        self.names.append(name)
        if len(self.names) == 1:
            probe = start_thread(self._ask, "conformance probe")
            self.waits = not wait([probe], LOCK_WAIT).done
            self._probed.set()

    def settle(self) -> None:
        """Wait until the first change has been judged."""
        self._probed.wait(2 * LOCK_WAIT)


class DriverTrial:
    """Instances of a driver, one after the other, and what their calls did.

    ``called``: the driver's name. ``make``: makes an instance. ``conf``: has the deadlines.
    """

    driver: Driver

    def __init__(
        self, called: str, make: Callable[[], Driver], conf: cfg.ConfigOpts, host: HostContext
    ) -> None:
        self._make, self.conf, self.host = make, conf, host
        self._worker = DriverWorker(called, _STUCK)
        self.records: dict[str, CallRecord] = defaultdict(CallRecord)
        self.listed: Nodes = {}
        """The nodes as first listed."""
        self.sample: Sequence[str] = ()
        """The names of the nodes that are checked one by one."""
        self.why_no_sample = "the driver lists no nodes"
        self.listener = ChangeListener(lambda: self.driver.nodes(False))
        self.not_again = ""
        """Why there is no second instance; empty if there is one."""
        self._facts: dict[str, HostFacts] = {}
        self._hung: set[str] = set()
        self._started = False

    # --- instances --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make the first instance.

        :raises AgentError: it cannot be made.
        """
        self.driver = self._instance()

    def make_another(self) -> Driver:
        """Return a further instance.

        :raises Unanswered: it cannot be made; the reason is recorded.
        """
        try:
            return self._instance()
        except AgentError as error:
            self.not_again = printable(str(error))
            raise Unanswered("see the check constructor: there is no second instance") from error

    def start(self, host: HostContext) -> None:
        """Start the present instance.

        :raises AgentError: the driver says that it cannot be started.
        :raises Unanswered: it hung, or raised something else.
        """
        self._hung.clear()
        self._record_call("start", (host,))
        self._started = True

    def stop(self) -> None:
        """Stop the present instance; a failure is recorded."""
        try:
            self._record_call("stop", ())
        except (AgentError, Unanswered):
            return
        finally:
            self._started = False

    def _instance(self) -> Driver:
        def constructor() -> Driver:
            return self._make()

        return self._worker.call(constructor, deadline=self.conf.compute.start_deadline)

    # --- calls ------------------------------------------------------------------------------------

    def implements(self, ability: Any) -> bool:
        """Return whether the agent would use this ability of the driver."""
        if ability is CountsHangingCalls:
            # Not by isinstance(), which reads the property, and that may hang or raise.
            return getattr_static(self.driver, "hanging", None) is not None
        if ability is ShapesTree and isinstance(self.driver, UpdatesProviderTree):
            return False
        return ability is None or isinstance(self.driver, ability)

    def call(
        self,
        method: str,
        *args: object,
        node: str = "",
        early: bool = False,
        on: Driver | None = None,
    ) -> Any:
        """Return what the driver's method returns; while it raises NotReady, it is called again a
        few times.

        :param node: the name of the node that the call is about.
        :param early: the call may be made before the start.
        :param on: another instance than the present one.
        :raises Unanswered: no answer came; the reason is recorded.
        """
        if not (self._started or early):
            raise Unanswered("see the checks start and constructor: the driver did not start")
        if method in self._hung:
            raise Unanswered(f"see the check {method}: it hung before")
        for tries_left in reversed(range(TRIES)):
            try:
                return self._record_call(method, args, node, on)
            except NotReady as error:
                if not tries_left:
                    raise Unanswered(f"{method}: {printable(str(error))}") from error
                time.sleep(PAUSE)
            except ReshapeNeeded as error:
                raise ReshapeAsked("see the check tree-allocations") from error
            except AgentError as error:
                text = f"{method}: {printable(str(error))}"
                about = f"{printable(node)}: " if node else ""
                self.records[method].errors.append(f"{about}{text}")
                raise Unanswered(text) from error
        raise AssertionError

    def fault(self, method: str, *args: object, errors: bool = False) -> str:
        """Call the method once, at any time, without recording it. Return how it hung, or what it
        raised that is no error of the agent; empty if it ended as it should. ``errors``: an error
        of the agent is a fault too.
        """
        try:
            self._call_once(method, args)
        except DriverTimeout as error:
            return error.message
        except _Misbehaved as error:
            return str(error)
        except AgentError as error:
            return f"{method} raised {describe_exception(error)}" if errors else ""
        return ""

    def _record_call(
        self, method: str, args: Sequence[object], node: str = "", on: Driver | None = None
    ) -> Any:
        record = self.records[method]
        try:
            answer = self._call_once(method, args, node, on)
        except DriverTimeout as error:
            self._hung.add(method)
            record.faults.append(error.message)
            raise Unanswered(f"see the check {method}: it hung") from error
        except NotReady:
            record.not_ready += 1
            raise
        except _Misbehaved as error:
            record.faults.append(str(error))
            raise Unanswered(f"see the check {method}: it raised an exception") from error
        record.answered += 1
        return answer

    def _call_once(
        self, method: str, args: Sequence[object], node: str = "", on: Driver | None = None
    ) -> Any:
        driver = on or self.driver

        def made() -> Any:
            # Returned and not raised, so that the worker does not take it for an error of the
            # agent. SystemExit too, because it ends the call's own thread only.
            try:
                found = getattr(driver, method)
                return found if method == "hanging" else found(*args)
            except AgentError:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever somebody else's driver raises
                return _Misbehaved(f"{method} raised {describe_exception(error)}")

        made.__name__ = method
        answer = self._worker.call(made, deadline=self._deadline(method), node=node)
        if isinstance(answer, _Misbehaved):
            raise answer
        return answer

    def _deadline(self, method: str) -> float:
        compute = self.conf.compute
        if method in ("start", "subscribe", "check"):
            return float(compute.start_deadline)
        if method == "stop":
            return STOP_DEADLINE
        return float(compute.nodes_deadline if method == "nodes" else compute.facts_deadline)

    # --- answers ----------------------------------------------------------------------------------

    def usable_nodes(self, *, refresh: bool = True) -> Nodes:
        """Return the nodes that the driver lists, uuid to name, without what is no uuid or no name.

        :raises Unanswered: the driver does not list them.
        """
        found = self.call("nodes", refresh)
        try:
            return {
                normal_uuid(uuid): name
                for uuid, name in found.items()
                if isinstance(uuid, str) and is_uuid(uuid) and isinstance(name, str)
            }
        except Exception as error:
            raise Unanswered("see the check nodes-mapping: the answer is no mapping") from error

    def answered_facts(self, node: str) -> HostFacts:
        """Return the node's facts as the driver answered them first, which may break promises.

        :raises Unanswered: they are no facts, or did not come.
        """
        if node not in self._facts:
            answer = self.call("facts", node, node=node)
            if not isinstance(answer, HostFacts):
                raise Unanswered("see the check facts-types: they are no HostFacts")
            self._facts[node] = answer
        return self._facts[node]

    def sound_facts(self, node: str) -> HostFacts:
        """Return the node's facts, for checks that need them as the interface says.

        :raises Unanswered: they are not.
        """
        facts = self.answered_facts(node)
        if next(faults_of(facts, HostFacts), None) is not None:
            raise Unanswered("see the checks of the facts: they cannot be used")
        return facts

    def edit_tree(
        self, node: str, tree: ProviderTree, allocations: Allocations | None = None
    ) -> ProviderTree:
        """Have the driver edit ``tree`` in place, and return it.

        :raises Unanswered: the driver failed.
        """
        method, *args = self._edit(node, tree, allocations)
        self.call(method, *args, node=node)
        return tree

    def edit_fault(self, node: str, tree: ProviderTree) -> str:
        """Have the driver edit ``tree`` in place. Return how it failed, which is not recorded;
        empty if it did not.
        """
        method, *args = self._edit(node, tree, None)
        return self.fault(method, *args, errors=True)

    def _edit(self, node: str, tree: ProviderTree, allocations: Allocations | None) -> list[Any]:
        """Return the method that the agent would use, and its arguments.

        :raises Unanswered: the facts that it needs cannot be used.
        """
        if isinstance(self.driver, UpdatesProviderTree):
            return ["update_provider_tree", tree, node, allocations]
        return ["shape", tree, self.sound_facts(node), allocations]

    def notes(self) -> Iterator[str]:
        """Yield what is no breach and yet worth a look: errors of the agent that the driver raised,
        and sections of facts that were not complete.
        """
        for record in self.records.values():
            yield from dict.fromkeys(record.errors)
        for node, facts in self._facts.items():
            if isinstance(facts.incomplete, Mapping):
                for section, reason in facts.incomplete.items():
                    yield f"{printable(node)}: {printable(f'{section} is not complete: {reason}')}"


def describe_exception(error: BaseException) -> str:
    """Return the last line of an exception's traceback, and where it was raised."""
    text = printable(masked("".join(traceback.format_exception_only(error)).strip()))
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    frame = frames[-1]
    return f"{text} ({printable(frame.filename)}:{frame.lineno}, in {frame.name})"
