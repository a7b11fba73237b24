"""One driver on trial: its calls in a worker with deadlines, and how each call ended."""

import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar, cast

from agent.driver.answers import Nodes, faults_of
from agent.driver.conformance.listener import ChangeListener
from agent.driver.conformance.output_watch import OutputWatch
from agent.driver.conformance.process_watch import ProcessWatch
from agent.driver.conformance.trial_settings import CONSTRUCTED, Call, TrialSettings
from agent.driver.interface import (
    Allocations,
    Driver,
    HostContext,
    ShapesTree,
    TellsOfChanges,
    UpdatesProviderTree,
)
from agent.driver.worker import DriverWorker
from agent.errors import AgentError, DriverTimeout, NotReady, ReshapeNeeded
from agent.model.facts import HostFacts
from agent.model.names import masked, printable
from agent.model.provider_tree import ProviderTree

T = TypeVar("T")

TRIES = 5
"""How often a call is made that raises NotReady."""
PAUSE = 0.1
"""Seconds between these calls."""
# How many calls may hang at once: more than there are methods, because a call that hung is not made
# again on the same instance.
_STUCK = 100
# How many nodes are checked one by one, unless all are to be.
_SAMPLE = 20


_ONLY_ONE = "see the check constructor: there is no second instance"
# After so many calls of a method, what they do to the process is looked at after each check only.
_LOOKS = 3


class Unanswered(Exception):
    """An answer that a check needs did not come. Its text says why."""


class ReshapeAsked(Unanswered):
    """The driver raised ReshapeNeeded."""


class NothingToCheck(Exception):
    """Nothing happened that the check could judge. Its text says what would have to happen."""


@dataclass(slots=True)
class CallRecord:
    """How the calls of one method ended."""

    answered: int = 0
    not_ready: int = 0
    faults: list[tuple[str, str]] = field(default_factory=list)
    """Calls that hung, or raised what is no error of the agent: the node, and what happened."""
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Errors of the agent that the driver raised: the node, and the error."""


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


class DriverTrial:
    """Instances of a driver, one after the other, and what their calls did."""

    def __init__(self, settings: TrialSettings) -> None:
        self.settings = settings
        self.driver: Driver
        self.worker = DriverWorker(settings.called, _STUCK)
        self.records: dict[Call, CallRecord] = {}
        self.listed: Nodes = {}
        """The nodes of the first instance, uuid to name, if the answer could be used."""
        self.sample: Sequence[str] = ()
        """The names of the nodes that are checked one by one."""
        self.why_no_sample = "the driver lists no nodes"
        self.output = OutputWatch()
        self.listener = ChangeListener(lambda: self.driver.nodes(False))
        self.not_again = ""
        """Why there is no second instance; empty if there is one."""
        self.process_changes: list[str] = []
        """What the driver did to the process."""
        self._watch = ProcessWatch()
        self._looked: Counter[str] = Counter()
        self._looking = threading.Lock()
        self._facts: dict[str, HostFacts] = {}
        self._hung: set[Call] = set()
        self._blocked = "the driver has not been started"

    # --- instances --------------------------------------------------------------------------------

    def start(self, host: HostContext) -> None:
        """Start the present instance.

        :raises AgentError: the driver says that it cannot be started.
        :raises Unanswered: it hung, or raised something else.
        """
        self._blocked = "see the check start: the driver did not start"
        if self.record("start").faults:
            raise Unanswered(self._blocked)
        self._ended("start", "", lambda: self._make("start", self.driver.start, (host,)))
        self._blocked = ""

    def stop(self) -> None:
        """Stop the present instance; a failure is recorded."""
        try:
            self._ended("stop", "", lambda: self._make("stop", self.driver.stop, ()))
        except (AgentError, Unanswered):
            return
        finally:
            self._blocked = "the driver was stopped"

    def begin(self) -> None:
        """Make the first instance, with standard output watched already.

        :raises ConfigError: it cannot be made.
        """
        self._watch = ProcessWatch()
        self.driver = self._instance()

    def renew(self) -> None:
        """Go on with a new instance, which is not started.

        :raises Unanswered: it cannot be made; the reason is recorded.
        """
        self._blocked = _ONLY_ONE
        self.driver = self.make_another()
        self._blocked = "the driver has not been started"
        self._hung.clear()

    def make_another(self) -> Driver:
        """Return a further instance.

        :raises Unanswered: it cannot be made; the reason is recorded.
        """
        try:
            return self._instance()
        except AgentError as error:
            self.not_again = printable(str(error))
            raise Unanswered(_ONLY_ONE) from error

    def _instance(self) -> Driver:
        with self.settings.progress.during(CONSTRUCTED, self.settings.deadlines.start):
            driver = self.settings.make()
        self.settings.progress.returned(CONSTRUCTED)
        self.look_at_process(CONSTRUCTED)
        return driver

    def look_at_process(self, after: str, *, at_most: int = sys.maxsize) -> None:
        """Note what has changed of the process; ``at_most``: so many times with the same
        ``after``.
        """
        with self._looking:
            self._looked[after] += 1
            if self._looked[after] > at_most:
                return
            self.process_changes += (f"{after}: {text}" for text in self._watch.changes())

    def threads_left(self) -> Iterator[str]:
        """Yield a text for each of the driver's threads that keeps the process from ending."""
        return self._watch.threads_left()

    # --- calls ------------------------------------------------------------------------------------

    def call(
        self,
        name: Call,
        function: Callable[..., T],
        *args: object,
        node: str = "",
        early: bool = False,
    ) -> T:
        """Return what ``function(*args)``, the driver's method ``name``, returns; while it raises
        NotReady, it is called again a few times.

        :param node: the name of the node that the call is about.
        :param early: the call may be made before the start.
        :raises Unanswered: no answer came; the reason is recorded.
        """
        if self._blocked and not early:
            raise Unanswered(self._blocked)
        if name in self._hung:
            raise Unanswered(f"see the check {name}: it hung before")
        for tries_left in reversed(range(TRIES)):
            try:
                return self._ended(name, node, lambda: self._make(name, function, args, node))
            except NotReady as error:
                if not tries_left:
                    raise Unanswered(f"{name}: {printable(str(error))}") from error
                time.sleep(PAUSE)
            except ReshapeNeeded as error:
                raise ReshapeAsked("see the check tree-allocations") from error
            except AgentError as error:
                self.record(name).errors.append((node, printable(str(error))))
                raise Unanswered(f"{name}: {printable(str(error))}") from error
        raise AssertionError

    def fault(
        self, name: Call, function: Callable[..., object], *args: object, errors: bool = False
    ) -> str:
        """Call ``function(*args)`` once, at any time, without recording it. Return how it hung, or
        what it raised that is no error of the agent; empty if it ended as it should. ``errors``: an
        error of the agent is a fault too.
        """
        try:
            ended = self._make(name, function, args)
        except DriverTimeout as error:
            return error.message
        except AgentError as error:
            return f"{name} raised {describe_exception(error)}" if errors else ""
        if isinstance(ended, _Raised):
            return f"{name} raised {describe_exception(ended.error)}"
        return ""

    def record(self, name: Call) -> CallRecord:
        """Return how the calls of a method ended so far."""
        return self.records.setdefault(name, CallRecord())

    def _make(
        self, name: Call, function: Callable[..., T], args: Sequence[object], node: str = ""
    ) -> T | _Raised:
        """Make a call in the worker. What it raises is returned if it is no error of the agent, so
        that the worker does not take it for the driver's own error.
        """

        progress, deadline = self.settings.progress, self.settings.deadlines.of(name)
        what = f"{name}() of node {printable(node)}" if node else f"{name}()"

        def guarded() -> T | _Raised:
            try:
                return function(*args)
            except AgentError:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever somebody else's driver raises
                return _Raised(error)
            finally:
                progress.returned(what)

        guarded.__name__ = name
        with progress.during(what, deadline):
            try:
                return self.worker.call(guarded, deadline=deadline, node=node)
            finally:
                self.look_at_process(f"{name}()", at_most=_LOOKS)

    def _ended(self, name: Call, node: str, make: Callable[[], T | _Raised]) -> T:
        record = self.record(name)
        try:
            ended = make()
        except DriverTimeout as error:
            self._hung.add(name)
            record.faults.append((node, error.message))
            raise Unanswered(f"see the check {name}: it hung") from error
        except NotReady:
            record.not_ready += 1
            raise
        if isinstance(ended, _Raised):
            record.faults.append((node, f"{name} raised {describe_exception(ended.error)}"))
            raise Unanswered(f"see the check {name}: it raised an exception")
        record.answered += 1
        return ended

    # --- answers ----------------------------------------------------------------------------------

    def choose_sample(self) -> None:
        """Choose the nodes that are checked one by one: all, or so many from all parts of the list.

        :raises ConfigError: a chosen node does not exist.
        """
        names = sorted(set(self.settings.choose(self.listed).values()))
        most = len(names) if self.settings.every_node else _SAMPLE
        step = max(1, -(-len(names) // most)) if most else 1
        self.sample = names[::step]

    def subscribe(self) -> None:
        """Subscribe to the driver's changes, if it tells of them.

        :raises Unanswered: the driver failed.
        """
        driver = self.driver
        if isinstance(driver, TellsOfChanges):
            self.call("subscribe", driver.subscribe, self.listener.changed)

    def incomplete(self) -> Iterator[str]:
        """Yield the sections of facts that were not complete, with the reasons."""
        for node, facts in self._facts.items():
            if isinstance(facts.incomplete, Mapping):
                for section, reason in facts.incomplete.items():
                    yield f"{printable(node)}: {printable(f'{section} is not complete: {reason}')}"

    def uuid(self, node: str) -> str:
        """Return the uuid of a listed node."""
        return next(uuid for uuid, name in self.listed.items() if name == node)

    def answered_facts(self, node: str) -> HostFacts:
        """Return the node's facts as the driver answered them first, which may break promises.

        :raises Unanswered: they are no facts, or did not come.
        """
        if node not in self._facts:
            answer = self.call("facts", self.driver.facts, node, node=node)
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
        name, edit = self._editor(node)
        self.call(name, edit, tree, allocations, node=node)
        return tree

    def edit_fault(self, node: str, tree: ProviderTree) -> str:
        """Have the driver edit ``tree`` in place. Return how it failed, which is not recorded;
        empty if it did not.
        """
        name, edit = self._editor(node)
        return self.fault(name, edit, tree, None, errors=True)

    def _editor(self, node: str) -> tuple[Call, Callable[[ProviderTree, Allocations | None], None]]:
        """Return the method that the agent would use, with its name.

        :raises Unanswered: the facts that it needs cannot be used.
        """
        driver = self.driver
        if isinstance(driver, UpdatesProviderTree):
            update = driver.update_provider_tree
            return "update_provider_tree", lambda tree, given: update(tree, node, given)
        facts, shape = self.sound_facts(node), cast(ShapesTree, driver).shape
        return "shape", lambda tree, given: shape(tree, facts, given)


@contextmanager
def examining() -> Iterator[None]:
    """Take an answer that the block cannot examine for one that did not come.

    :raises Unanswered: the answer raised an exception when it was looked at.
    """
    try:
        yield
    except (AgentError, Unanswered):
        raise
    except Exception as error:
        text = f"the answer cannot be examined: {describe_exception(error)}"
        raise Unanswered(text) from error


def describe_exception(error: BaseException) -> str:
    """Return the last line of an exception's traceback, and where it was raised."""
    text = printable(masked("".join(traceback.format_exception_only(error)).strip()))
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    frame = frames[-1]
    return f"{text} ({printable(frame.filename)}:{frame.lineno}, in {frame.name})"
