"""All that trackers do, in any order, with faults at any write: what an account of its own says is
what there is.

Two agents on one store, one of them with two nodes, and guests that are claimed, moved, changed and
forgotten.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from agent.errors import AgentError, ConfigErrors
from agent.model.devices import DeviceRequest
from agent.model.instance import Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import RecordChanges
from agent.store.reading import RecordReader
from agent.store.records import Records
from agent.tracker.claims import allocate_devices
from agent.tracker.errors import ClaimIdTaken, ResourcesUnavailable, TrackerError
from agent.tracker.moves import drop_half
from agent.tracker.node_state import NodeState
from agent.tracker.requests import (
    ClaimLimits,
    DeviceClaim,
    InstanceClaim,
    InstanceUpdate,
    MoveClaim,
)
from tests.support.agents import HOUR, Agent
from tests.support.crash import Crash
from tests.support.faulty_store import AFTER_COMMIT, Fault, FaultyStore
from tests.support.promised import CELLS, GIVEN_UP, TYPES, UNITS, WAITING, Refused, Shown, Wanted
from tests.support.promises import Promises
from tests.support.promises_kept import kept
from tests.support.tracking import (
    F1,
    F2,
    FN,
    FN4,
    PMEM,
    Time,
    World,
    guest,
    instance,
    settled,
    step,
    uuid_of,
)

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("TRACKER_EXAMPLES", "30"))
STEPS = int(os.environ.get("TRACKER_STEPS", "50"))
# Shrinking takes minutes, which CI has not: set this to see the smallest example that fails.
SHRINK = (Phase.shrink,) if os.environ.get("TRACKER_SHRINK") else ()

Real = Callable[[Agent], object]
Account = Callable[[Promises], None]
FaultAt = tuple[str, int] | None

FLAVORS = st.sampled_from([F1, F2, FN, FN4])
TYPE_LISTS = st.sampled_from(
    [
        (),
        (),
        ("type-PCI",),
        ("type-VF",),
        ("type-VF", "type-VF"),
        ("type-PF",),
        ("type-PF", "type-VF"),
        ("type-PCI", "type-VF"),
    ]
)
WANTED = st.builds(
    Wanted, TYPE_LISTS, st.sampled_from([0, 0, 1, 2]), st.sampled_from([None, None, None, 4])
)
SHOWN = st.builds(
    Shown,
    online=st.frozensets(st.sampled_from(sorted(frozenset().union(*CELLS))), max_size=2).map(
        lambda gone: frozenset(range(16)) - gone
    ),
    devices=st.none() | st.frozensets(st.sampled_from(sorted(TYPES))),
    units=st.none() | st.frozensets(st.sampled_from(UNITS)),
)
STATES = st.fixed_dictionaries(
    {},
    optional={
        "vm_state": st.sampled_from(
            ["active", "active", "stopped", "resized", "error", "deleted", "shelved_offloaded"]
        ),
        "task_state": st.sampled_from(
            [None, "resize_prep", "resize_reverting", "migrating", "spawning"]
        ),
        "deleted": st.sampled_from([False, False, False, True]),
    },
)
# Nobody is faster once the commit is through, and nobody else publishes or removes a node.
FAULTS = [
    (kind, at)
    for kind in ("crash", "failure", "conflict")
    for at in (0, 1, 2, 3, 4, AFTER_COMMIT)
    if (kind, at) != ("conflict", AFTER_COMMIT)
]
WITHOUT_CONFLICTS = ("publish", "leave_a_node")
# How often each is done, of a hundred.
OPERATIONS = {
    "claim": 12,
    "abort": 5,
    "claim_devices": 6,
    "allocate_devices": 4,
    "free_devices": 3,
    "move": 14,
    "go_on": 18,
    "drop": 3,
    "give_a_move_up": 4,
    "update": 8,
    "count_build": 1,
    "audit": 8,
    "publish": 2,
    "dry_run": 1,
    "leave_a_node": 3,
    "restart": 2,
    "wait": 3,
    "take_a_taken_id": 1,
    "deliver_again": 2,
}


ALL_MET = [
    *(f"{kind} at {at}" for kind, at in FAULTS if at in (0, 2, AFTER_COMMIT)),
    *(
        f"{what}: {how}"
        for what in ("claim", "abort", "finish", "confirm", "revert", "drop")
        for how in ("done", "refused")
    ),
    *(
        f"{what}: done"
        for what in (
            "claim devices",
            "allocate devices",
            "free devices",
            *(f"move by {kind}" for kind in GIVEN_UP),
            "update",
        )
    ),
    *(f"{what}: done" for what in ("start", "audit", "publish", "remove", "count build")),
]


class TrackersMachine(RuleBasedStateMachine):
    """Every rule tells the account what is done, does it, and does it once more."""

    store: FaultyStore
    met: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.store.empty()
        records, self.time = Records(self.store), Time()  # type: ignore[arg-type]
        self.agents = {
            name: Agent(name, nodes, records, self.time)
            for name, nodes in (("east", ("E1", "E2")), ("west", ("W1",)))
        }
        self.nodes = {node: agent for agent in self.agents.values() for node in agent.nodes}
        self.account = Promises({node: agent.name for node, agent in self.nodes.items()})
        self.done: list[tuple[Agent, Account, Real]] = []
        self.asked = 0
        for agent in self.agents.values():
            self.start(agent)

    # --- how anything is done ---------------------------------------------------------------------

    def do(
        self,
        agent: Agent,
        account: Account,
        real: Real,
        fault: FaultAt,
        name: str,
        *,
        again: bool = True,
    ) -> bool:
        """Do something; after a fault, the caller asks again. Unless ``again`` is false, doing it
        once more changes nothing. Whether that is not refused.
        """
        if self._attempt(agent, account, real, fault, name):
            self._attempt(agent, account, real, None, name)
        return again and self._repeat(agent, account, real)

    def do_for_good(
        self, agent: Agent, account: Account, real: Real, fault: FaultAt, name: str
    ) -> None:
        """Do something that changes nothing when it is done once more, even much later."""
        if self.do(agent, account, real, fault, name):
            self.done.append((agent, account, real))

    def new_id(self) -> str:
        """An id that nobody has asked with."""
        self.asked += 1
        return f"request-{self.asked}"

    def _attempt(
        self, agent: Agent, account: Account, real: Real, fault: FaultAt, name: str
    ) -> bool:
        """Whether a fault came in between."""
        after, refused = self.account.copy(), None
        try:
            account(after)
        except Refused as refusal:
            refused = refusal
        before, self.store.fault = self.store.dump(), Fault(*fault) if fault else None
        error = _error(lambda: real(agent))
        struck, self.store.fault = self.store.fault, None
        note(
            f"{agent.name}: {name}{f' with {struck}' if struck and struck.struck else ''}: "
            f"{error or 'done'}"
        )
        self.met[f"{name}: {'refused' if refused else 'done'}"] += 1
        if refused:
            _check_refusal(error, refused)
            assert self.store.dump() == before
        elif struck is None or not struck.struck or struck.kind == "conflict":
            assert error is None, error
            self.account = after
        else:
            self._survive(agent, struck, error, before, after)
        if struck is None or not struck.struck:
            return False
        self.met[f"{struck.kind} at {struck.at}"] += 1
        return struck.kind != "conflict"

    def _survive(
        self,
        agent: Agent,
        fault: Fault,
        error: BaseException | None,
        before: object,
        after: Promises,
    ) -> None:
        """What was committed is there, and nothing else; what an agent has in mind of its nodes is
        as it was.
        """
        assert type(error).__name__ == {"crash": "Crash", "failure": "StoreError"}[fault.kind], (
            error
        )
        if fault.committed:
            self.account = replace(after, memory=self.account.memory)
        else:
            assert self.store.dump() == before
        if fault.kind == "crash":
            self.account.restart(agent.name)
            self.start(agent)

    def _repeat(self, agent: Agent, account: Account, real: Real) -> bool:
        """Once more: nothing changes. Whether it is not refused."""
        expected, refused, before = self.account.copy(), None, self.store.dump()
        try:
            account(expected)
        except Refused as refusal:
            refused = refusal
        error = _error(lambda: real(agent))
        if refused:
            _check_refusal(error, refused)
        else:
            assert error is None, error
            assert expected == self.account
        assert self.store.dump() == before
        return refused is None

    def start(self, agent: Agent) -> None:
        """A new process of an agent, on a host that is as it should be if the agent refuses to
        start on it as it is.
        """
        agent.restart()
        for node in agent.nodes:
            try:
                self.account.copy().audit(node, agent.shown[node], start=True)
            except Refused:
                self._attempt(
                    agent,
                    lambda account, node=node: account.audit(node, agent.shown[node], start=True),
                    _audit(node, start=True),
                    None,
                    "start",
                )
                agent.shown[node] = Shown()
            self._attempt(
                agent,
                lambda account, node=node: account.audit(node, agent.shown[node], start=True),
                _audit(node, start=True),
                None,
                "start",
            )

    # --- what is done -----------------------------------------------------------------------------

    @initialize(data=st.data(), flavors=st.lists(FLAVORS, min_size=2, max_size=3))
    def some_guests(self, data: Any, flavors: list[Any]) -> None:
        for flavor in flavors:
            self.claim(data, None, flavor, Wanted())
            self.the_records_are_as_the_account_says()

    @rule(
        data=st.data(),
        operation=st.sampled_from(
            [name for name, often in OPERATIONS.items() for _ in range(often)]
        ),
    )
    def something(self, data: Any, operation: str) -> None:
        undisturbed = [None] * len(FAULTS)
        faults = (
            [fault for fault in FAULTS if fault[0] != "conflict"]
            if operation in WITHOUT_CONFLICTS
            else FAULTS
        )
        getattr(self, operation)(data, data.draw(st.sampled_from([*undisturbed, *faults])))

    def wait(self, _data: Any, _fault: FaultAt) -> None:
        """An hour."""
        self.time.pass_by(HOUR)
        self.account.hour += 1

    def claim(
        self, data: Any, fault: FaultAt, flavor: Any = None, wanted: Wanted | None = None
    ) -> None:
        node, flavor, wanted = (
            self._node(data),
            flavor or data.draw(FLAVORS),
            wanted or data.draw(WANTED),
        )
        gone = [name for name, guest in self.account.guests.items() if guest.host is None]
        name = data.draw(
            st.sampled_from(
                [f"i{len(self.account.guests)}"] * 3 + gone + list(self.account.guests)[-2:]
            )
        )
        id = self.new_id()
        request = InstanceClaim(
            id=uuid_of(id),
            node=node,
            instance=instance(name, flavor, task_state="spawning"),
            limits=ClaimLimits(vcpus=wanted.vcpus),
            **_asked(node, wanted),
        )
        self.do_for_good(
            self.nodes[node],
            lambda account: account.claim(id, node, name, flavor, wanted),
            lambda agent: agent.tracker.claim(request),
            fault,
            "claim",
        )

    def abort(self, data: Any, fault: FaultAt) -> None:
        open_ones = [id for id, promise in self.account.promises.items() if promise.open]
        if id := self._one(data, open_ones, self.account.promises):
            agent = self._agent(data)
            self.do_for_good(
                agent,
                lambda account: account.abort(agent.name, id),
                lambda agent: agent.tracker.abort(uuid_of(id)),
                fault,
                "abort",
            )

    def claim_devices(self, data: Any, fault: FaultAt) -> None:
        types, id = data.draw(TYPE_LISTS.filter(bool)), self.new_id()
        if name := self._one(data, self._placed(), self.account.guests):
            node = self._place(data, name)
            request = DeviceClaim(
                id=uuid_of(id), node=node, instance=guest(name), devices=_devices(types)
            )
            self.do_for_good(
                self.nodes[node],
                lambda account: account.claim_devices(id, node, name, types),
                lambda agent: agent.tracker.claim_devices(request),
                fault,
                "claim devices",
            )

    def allocate_devices(self, data: Any, fault: FaultAt) -> None:
        waiting = [
            id
            for id, promise in self.account.promises.items()
            if promise.open and promise.devices and not promise.attached
        ]
        if id := self._one(data, waiting, self.account.promises):
            agent = self.nodes[self.account.promises[id].node]
            self.do_for_good(
                agent,
                lambda account: account.allocate(agent.name, id),
                lambda agent: agent.tracker.change(uuid_of(id), allocate_devices),
                fault,
                "allocate devices",
            )

    def free_devices(self, data: Any, fault: FaultAt) -> None:
        only = data.draw(st.sampled_from([None, "claimed", "allocated"]))
        having = [
            promise.instance
            for promise in self.account.promises.values()
            if promise.open and promise.purpose == "devices"
        ]
        if name := self._one(data, having, self.account.guests):
            node = self._place(data, name)
            self.do(
                self.nodes[node],
                lambda account: account.free(node, name, only),
                lambda agent: agent.tracker.free_devices(node, guest(name), only),
                fault,
                "free devices",
            )

    def move(self, data: Any, fault: FaultAt) -> None:
        node, type, flavor, wanted = (
            self._node(data),
            data.draw(st.sampled_from(sorted(GIVEN_UP))),
            data.draw(FLAVORS),
            data.draw(WANTED),
        )
        id, new = self.new_id(), flavor if type == "resize" else None
        if name := self._one(data, self._placed(), self.account.guests):
            request = MoveClaim(
                id=uuid_of(id),
                type=type,
                node=node,
                instance=instance(name, flavor),
                flavor=new,
                limits=ClaimLimits(vcpus=wanted.vcpus),
                **_asked(node, wanted),
            )
            self.do_for_good(
                self.nodes[node],
                lambda account: account.move(id, type, node, name, new, wanted),
                lambda agent: agent.tracker.claim_move(request),
                fault,
                f"move by {type}",
            )

    def go_on(self, data: Any, fault: FaultAt) -> None:
        current = [
            id
            for id in self.account.moves
            if self.account.promises[id].move is not None and self.account.promises[id].open
        ]
        waiting = [id for id in current if self.account.moves[id].status in WAITING]
        if id := self._one(data, waiting * 4 + current, self.account.moves):
            agent = self._agent(data)
            likely = {
                "finished": ["confirm", "confirm", "revert", "revert"],
                "confirming": ["confirm"] * 3,
            }.get(self.account.moves[id].status, ["finish"] * 3)
            what = data.draw(st.sampled_from([*likely, "finish", "confirm", "revert", "abort"]))
            if what == "revert" and data.draw(st.sampled_from([True, True, True, False])):
                self._update(
                    agent, self.account.moves[id].instance, {"task_state": "resize_reverting"}, None
                )
            self.do_for_good(
                agent,
                lambda account: getattr(account, what)(agent.name, id),
                lambda agent: step(agent.tracker, what, uuid_of(id)),
                fault,
                what,
            )

    def drop(self, data: Any, fault: FaultAt) -> None:
        half = data.draw(st.sampled_from(["old", "new"]))
        if id := self._one(
            data,
            [id for id, move in self.account.moves.items() if move.goes_on],
            self.account.moves,
        ):
            agent = self._agent(data)
            self.do_for_good(
                agent,
                lambda account: account.drop(agent.name, id, half),
                lambda agent: agent.tracker.change(uuid_of(id), partial(drop_half, half=half)),
                fault,
                "drop",
            )

    def give_a_move_up(self, data: Any, _fault: FaultAt) -> None:
        """An orchestrator writes it down by itself."""
        status, records = (
            data.draw(st.sampled_from(["error", "failed", "cancelled"])),
            self.agents["east"].records,
        )
        if id := self._one(
            data, [id for id, move in self.account.moves.items() if move.goes_on], []
        ):
            with records.transaction([]) as transaction:
                found = transaction.migration(ConsumerUuid(uuid_of(id)))
                assert found is not None
                transaction.write(RecordChanges(migrations=(replace(found, status=status),)))
            self.account.orchestrate(id, status)

    def update(self, data: Any, fault: FaultAt) -> None:
        if name := self._one(data, self._placed(), self.account.guests):
            self._update(self._agent(data), name, data.draw(STATES), fault)

    def count_build(self, data: Any, fault: FaultAt) -> None:
        node, result = self._node(data), data.draw(st.sampled_from(["failed", "succeeded"]))
        # One more time is one more failure.
        lost = None if fault and fault[1] == AFTER_COMMIT else fault
        self.do(
            self.nodes[node],
            lambda account: account.count_build(node, result),
            lambda agent: agent.tracker.count_build(node, result),
            lost,
            "count build",
            again=False,
        )

    def audit(self, data: Any, fault: FaultAt) -> None:
        node, shown = self._node(data), data.draw(SHOWN | st.just(Shown()) | st.none())
        agent = self.nodes[node]
        agent.shown[node] = shown or agent.shown[node]
        self.do(
            agent,
            lambda account: account.audit(node, agent.shown[node]),
            _audit(node),
            fault,
            "audit",
            again=False,
        )

    def publish(self, data: Any, fault: FaultAt) -> None:
        if (node := self._node(data)) in self.account.memory:
            agent = self.nodes[node]
            version = agent.tracker.view(node).node.version
            self.do_for_good(
                agent,
                lambda account: None,
                lambda agent: agent.usage_step.mark_published(node, version),
                fault,
                "publish",
            )

    def dry_run(self, data: Any, _fault: FaultAt) -> None:
        node, before = self._node(data), self.store.dump()
        self.nodes[node].audit(node, dry_run=True)
        assert self.store.dump() == before

    def leave_a_node(self, data: Any, fault: FaultAt) -> None:
        """The driver offers it no more, or it is gone for good; an audit finds it back."""
        if (node := self._node(data)) in self.account.memory:
            agent = self.nodes[node]
            if data.draw(st.booleans()):
                self.do(
                    agent,
                    lambda account: account.remove(node),
                    lambda agent: agent.usage_step.mark_deleted(node),
                    fault,
                    "remove",
                    again=False,
                )
            else:
                agent.usage_step.set_listed_nodes(agent.nodes.keys() - {node})
                self.account.unavailable(node)

    def restart(self, data: Any, _fault: FaultAt) -> None:
        agent = self._agent(data)
        self.account.restart(agent.name)
        self.start(agent)

    def take_a_taken_id(self, data: Any, _fault: FaultAt) -> None:
        if id := self._one(
            data,
            [
                id
                for id, promise in self.account.promises.items()
                if promise.node in self.account.memory
            ],
            [],
        ):
            node, before = self.account.promises[id].node, self.store.dump()
            with pytest.raises(ClaimIdTaken):
                self.nodes[node].tracker.claim(
                    InstanceClaim(id=uuid_of(id), node=node, instance=instance("another", F1))
                )
            assert self.store.dump() == before

    def deliver_again(self, data: Any, _fault: FaultAt) -> None:
        """Something that was done long ago."""
        if self.done:
            self._repeat(*data.draw(st.sampled_from(self.done[-20:])))

    # --- parts ------------------------------------------------------------------------------------

    def _update(self, agent: Agent, name: str, said: dict[str, Any], fault: FaultAt) -> None:
        self.do(
            agent,
            lambda account: account.update(agent.name, name, said),
            lambda agent: agent.tracker.update(guest(name), InstanceUpdate(**said)),
            fault,
            "update",
        )

    def _node(self, data: Any) -> ProviderUuid:
        return data.draw(st.sampled_from(list(self.nodes)))

    def _agent(self, data: Any) -> Agent:
        return self.agents[data.draw(st.sampled_from(["east", "west"]))]

    def _placed(self) -> list[str]:
        return [
            name
            for name, guest in self.account.guests.items()
            if guest.host is not None and not guest.removed
        ]

    def _place(self, data: Any, name: str) -> ProviderUuid:
        """A node where a guest has something, if there is one."""
        return data.draw(
            st.sampled_from(
                [promise.node for promise in self.account.open_of(name)] or list(self.nodes)
            )
        )

    @staticmethod
    def _one(data: Any, likely: Collection[str], possible: Collection[str]) -> str | None:
        """Mostly one of the ``likely``, which can be done, sometimes any; None if there is none."""
        found = list(likely) * 9 + list(possible)
        return data.draw(st.sampled_from(found)) if found else None

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def the_records_are_as_the_account_says(self) -> None:
        with self.store.reading() as connection:
            kept(self.account, RecordReader(connection, self.store.location))

    @invariant()
    def memory_is_as_the_records_are(self) -> None:
        for node in self.account.memory:
            agent = self.nodes[node]
            settled(SimpleNamespace(node=node, records=agent.records, tracker=agent.tracker))  # type: ignore[arg-type]
            state = agent.tracker.view(node)
            with agent.records.reading() as reading:
                records = reading.load(node)
            assert records is not None
            assert min(state.used.memory_mb, state.used.vcpus, state.used.disk_mb) >= 0
            anew = NodeState.of(records, state.host)
            assert (state.node, state.claims, state.cells, state.problems) == (
                anew.node,
                anew.claims,
                anew.cells,
                (),
            )
            assert {uuid: _known(instance) for uuid, instance in state.instances.items()} == {
                uuid: _known(instance) for uuid, instance in anew.instances.items()
            }


def _known(found: Instance) -> Instance:
    """An instance without what another node's audit may have tidied up meanwhile."""
    return replace(found, old_flavor=None, new_flavor=None, updated_at=0.0, version=0)


def _asked(node: ProviderUuid, wanted: Wanted) -> dict[str, Any]:
    return {
        "devices": _devices(wanted.devices),
        "allocations": {node: {"VCPU": 1, **({PMEM: wanted.units} if wanted.units else {})}},
    }


def _devices(types: tuple[str, ...]) -> tuple[DeviceRequest, ...]:
    return tuple(
        DeviceRequest(f"r{number}", 1, {"type": kind}) for number, kind in enumerate(types)
    )


def _audit(node: ProviderUuid, *, start: bool = False) -> Real:
    return lambda agent: agent.audit(node, start=start)


def _error(action: Callable[[], object]) -> BaseException | None:
    try:
        action()
    except (AgentError, Crash) as error:
        return error
    return None


def _check_refusal(error: BaseException | None, refused: Refused) -> None:
    assert isinstance(error, TrackerError | ConfigErrors), error
    assert isinstance(error, ResourcesUnavailable) == refused.room, error


def run(store: FaultyStore, examples: int) -> Counter[str]:
    """Run the machine; what of it was met, and how often."""
    met: Counter[str] = Counter()
    machine = type("Machine", (TrackersMachine,), {"store": store, "met": met})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.generate, *SHRINK),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )
    return met


# Hypothesis is limited by examples, and not by time.
@pytest.mark.timeout(900 if EXAMPLES <= 30 else 0)
def test_trackers_keep_every_promise_whatever_happens(
    world: World, request: pytest.FixtureRequest
) -> None:
    examples = EXAMPLES if request.node.callspec.params["world"] == "sqlite" else EXAMPLES // 5
    met = run(FaultyStore(world.store), examples)
    never = {*ALL_MET} - met.keys()
    assert examples < 30 or not never, "these were never met, so nothing is known of them"
