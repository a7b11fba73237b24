"""Who was promised what: an account of its own of all that trackers do, kept by the rules and not
with the tracker's code.

It tells whether an operation is refused and what there is afterwards, but not which of several
CPUs, devices or units a claim gets: that is seen once, must have been free then, and stays until it
is given back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from agent.model.instance import BUILT, Flavor
from agent.model.names import ProviderUuid
from tests.support.promised import (
    AT_ONCE,
    CELLS,
    DEVICES,
    GIVEN_UP,
    OVER,
    PF,
    SHARED,
    STAYS,
    VFS,
    WAITING,
    Got,
    Guest,
    Memory,
    Move,
    Promise,
    Refused,
    Shown,
    Wanted,
)


@dataclass
class Promises:
    """``hosts``: the agent of each node. ``memory``: of the nodes that were audited since their
    agent started.

    ``devices`` and ``units``: those of each node that were there when it was audited last.
    """

    hosts: Mapping[ProviderUuid, str]
    hour: int = 0
    promises: dict[str, Promise] = field(default_factory=dict)
    guests: dict[str, Guest] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)
    failed_builds: dict[ProviderUuid, int] = field(default_factory=dict)
    devices: dict[ProviderUuid, frozenset[str]] = field(default_factory=dict)
    units: dict[ProviderUuid, frozenset[str]] = field(default_factory=dict)
    memory: dict[ProviderUuid, Memory] = field(default_factory=dict)
    removed: frozenset[ProviderUuid] = frozenset()

    def copy(self) -> Self:
        """Another account, of the same."""
        return replace(
            self,
            **{
                one.name: dict(found)
                for one in fields(self)
                if isinstance(found := getattr(self, one.name), dict)
            },
        )

    # --- claims -----------------------------------------------------------------------------------

    def claim(self, id: str, node: ProviderUuid, name: str, flavor: Flavor, wanted: Wanted) -> None:
        self._ready(node)
        if self._again(id):
            return
        self._offered(node)
        guest = self.guests.get(name)
        if guest is not None and (
            guest.deleted or (guest.host is not None and not self._is_on(guest, node))
        ):
            raise Refused
        if self.open_of(name):
            raise Refused
        self._promise(id, "instance", name, node, flavor, wanted)
        self.guests[name] = Guest(
            flavor=flavor, host=self.hosts[node], node=node, task_state="spawning"
        )

    def abort(self, agent: str, id: str) -> None:
        promise = self._mine(agent, id)
        if promise.purpose == "move":
            self._abort_move(promise)
        elif promise.open:
            guest = self.guests[promise.instance]
            built = guest.node == promise.node and (
                promise.state == "consumed" or guest.vm_state in BUILT
            )
            if promise.move is not None or (promise.purpose == "instance" and built):
                raise Refused
            self._give_back([promise])
            if promise.purpose == "instance" and guest.node == promise.node:
                self.guests[promise.instance] = replace(guest, host=None, node=None)

    def claim_devices(
        self, id: str, node: ProviderUuid, name: str, devices: tuple[str, ...]
    ) -> None:
        self._ready(node)
        if self._again(id):
            return
        self._offered(node)
        if all(one.node != node for one in self.open_of(name)):
            raise Refused
        self._check_devices(node, devices)
        self.promises[id] = Promise(
            id=id,
            purpose="devices",
            instance=name,
            node=node,
            devices=devices,
            attached=False,
            hour=self.hour,
        )

    def allocate(self, agent: str, id: str) -> None:
        promise = self._mine(agent, id)
        if not promise.open:
            raise Refused
        if promise.devices and not promise.attached:
            self._change(
                promise,
                attached=True,
                state="consumed" if promise.purpose == "devices" else promise.state,
            )

    def free(self, node: ProviderUuid, name: str, only: str | None) -> None:
        self._ready(node)
        kinds = {True: "allocated", False: "claimed"}
        for one in self.open_of(name):
            if (
                one.purpose == "devices"
                and one.node == node
                and only in (None, kinds[one.attached])
            ):
                self._release(one)

    # --- moves ------------------------------------------------------------------------------------

    def move(
        self,
        id: str,
        type: str,
        node: ProviderUuid,
        name: str,
        flavor: Flavor | None,
        wanted: Wanted,
    ) -> None:
        self._ready(node)
        if self._again(id):
            return
        self._offered(node)
        guest = self.guests[name]
        if guest.removed or guest.host is None or any(one.move for one in self.open_of(name)):
            raise Refused
        if (type == "resize") != (flavor is not None) or (
            type in AT_ONCE and self._is_on(guest, node)
        ):
            raise Refused
        self._promise(
            id,
            "move",
            name,
            node,
            flavor or guest.flavor,
            wanted,
            half="new",
            move=id,
            attached=type != "live-migration",
        )
        for one in self.open_of(name):
            if one.half == "only" and one.purpose != "devices" and one.node == guest.node:
                self._change(one, half="old", move=id)
        status = "accepted" if type == "live-migration" else "pre-migrating"
        self.moves[id] = Move(
            instance=name,
            type=type,
            status=status,
            source=guest.node,
            source_host=guest.host,
            dest=node,
        )
        if type == "resize":
            self.guests[name] = replace(guest, old=guest.flavor, new=flavor)

    def finish(self, agent: str, id: str) -> None:
        promise, move, guest = self._arriving(agent, id)
        # Who was dead meanwhile is told of what has ended since.
        if promise.state == "consumed" or move.status in (*STAYS, "reverted"):
            return
        if not promise.open or move.status in OVER:
            raise Refused
        at_once = move.type in AT_ONCE
        if at_once:
            self._give_back(self._halves(id, "old"))
        self._change(
            promise,
            state="consumed",
            attached=True,
            **({"half": "only", "move": None} if at_once else {}),
        )
        for one in self.open_of(promise.instance):
            if one.purpose == "devices" and one.node == promise.node and not one.attached:
                self._change(one, state="consumed", attached=True)
        self.moves[id] = replace(move, status=AT_ONCE.get(move.type, "finished"))
        flavor = guest.new if move.type == "resize" and guest.new is not None else guest.flavor
        self.guests[promise.instance] = replace(
            guest, host=self.hosts[promise.node], node=promise.node, flavor=flavor
        )

    def confirm(self, agent: str, id: str) -> None:
        promise, move, guest = self._arriving(agent, id)
        if move.status == "confirmed":
            return
        if move.status not in WAITING:
            raise Refused
        self._give_back(self._halves(id, "old"))
        if promise.open:
            self._change(promise, half="only", move=None)
        self.moves[id] = replace(move, status="confirmed")
        self.guests[promise.instance] = replace(guest, old=None, new=None)

    def revert(self, agent: str, id: str) -> None:
        promise, move, guest = self._arriving(agent, id)
        if move.status == "reverted":
            return
        if move.status != "finished" or guest.task_state != "resize_reverting":
            raise Refused
        self._give_back([promise])
        self._back(id)
        self.moves[id] = replace(move, status="reverted")
        self.guests[promise.instance] = replace(
            guest,
            host=move.source_host,
            node=move.source,
            flavor=guest.old or guest.flavor,
            old=None,
            new=None,
        )

    def drop(self, agent: str, id: str, half: str) -> None:
        promise, move, guest = self._arriving(agent, id)
        halves = self._halves(id, half)
        arrived = promise.state == "consumed" or move.status in WAITING
        stayed = not arrived and (move.goes_on or guest.node == move.source)
        if halves and (arrived if half == "new" else stayed):
            raise Refused
        self._give_back(halves)
        if halves and half == "old" and move.status == "finished":
            self.moves[id] = replace(move, status="confirming")

    def orchestrate(self, id: str, status: str) -> None:
        """Somebody else writes how the move goes."""
        self.moves[id] = replace(self.moves[id], status=status)

    # --- guests and nodes -------------------------------------------------------------------------

    def update(self, agent: str, name: str, said: Mapping[str, Any]) -> None:
        before = self.guests.get(name)
        if before is None:
            raise Refused
        places = {before.node, *(one.node for one in self.open_of(name))}
        # One that is nobody's any agent may tell of.
        asked = places if before.host is not None or self.open_of(name) else self.memory.keys()
        if not any(self.hosts[one] == agent for one in asked & self.memory.keys()):
            raise Refused
        guest = replace(before, **said)
        if guest.removed:
            for id, move in self.moves.items():
                if move.instance == name and move.status not in OVER:
                    self.moves[id] = replace(
                        move, status="confirmed" if move.status in WAITING else GIVEN_UP[move.type]
                    )
            for one in self.open_of(name):
                self._release(one)
            guest = replace(guest, old=None, new=None)
            if guest.vm_state == "shelved_offloaded" and not guest.deleted:
                guest = replace(guest, host=None, node=None)
        elif guest.vm_state == "active":
            for one in self.open_of(name):
                if one.purpose == "instance" and one.state == "held":
                    self._change(one, state="consumed")
        self.guests[name] = guest

    def count_build(self, node: ProviderUuid, result: str) -> None:
        self._ready(node)
        self.failed_builds[node] = self.failed_builds.get(node, 0) + 1 if result == "failed" else 0

    def unavailable(self, node: ProviderUuid) -> None:
        self.memory[node] = replace(self.memory[node], available=False)

    def remove(self, node: ProviderUuid) -> None:
        del self.memory[node]
        self.removed |= {node}

    def restart(self, agent: str) -> None:
        """The agent forgets what it had in mind."""
        self.memory = {node: one for node, one in self.memory.items() if self.hosts[node] != agent}

    # --- audits -----------------------------------------------------------------------------------

    def audit(self, node: ProviderUuid, shown: Shown, *, start: bool = False) -> None:
        if start and not shown.online.issuperset(SHARED.union(*CELLS)):
            raise Refused
        here = self.open_on(node)
        ended = {one.id for one in here if self._is_over(one)}
        staying = {one.instance for one in here if one.purpose != "devices" and one.id not in ended}
        self._compete(node, here)
        for one in here:
            if one.id in ended or (one.purpose == "devices" and one.instance not in staying):
                self._release(one)
            elif (
                one.half != "only" and self.promises[one.id].half != "only" and self._is_alone(one)
            ):
                self._alone(one)
        devices, units = self.devices.get(node, frozenset()), self.units.get(node, frozenset())
        self.devices[node] = shown.devices if shown.devices is not None else devices
        self.units[node] = shown.units if shown.units is not None else units
        if start and self.held(node, "units") - self.units[node]:
            raise Refused
        self.memory[node] = Memory(shown.online)
        self.removed -= {node}

    def _is_over(self, one: Promise) -> bool:
        """A claim of a guest that is elsewhere, or that half of a move where it is not."""
        guest = self.guests[one.instance]
        if guest.removed:
            return True
        if one.move is None:
            return one.purpose != "devices" and guest.node not in (None, one.node)
        move = self.moves[one.move]
        if move.status not in OVER:
            return False
        if guest.node is not None and move.source != move.dest:
            return guest.node != one.node
        return guest.node not in (None, one.node) or one.half != (
            "new" if move.status in STAYS else "old"
        )

    def _is_alone(self, one: Promise) -> bool:
        """The half that stays of a move that is over."""
        assert one.move is not None
        move, guest = self.moves[one.move], self.guests[one.instance]
        failed = (
            move.status == "error"
            and one.half == "old"
            and guest.node == one.node
            and move.source != move.dest
        )
        return move.status in OVER or failed

    def _alone(self, one: Promise) -> None:
        self._change(
            one, half="only", move=None, state=one.state if one.half == "old" else "consumed"
        )
        guest = self.guests[one.instance]
        if guest.node == one.node:
            self.guests[one.instance] = (
                replace(guest, old=None, new=None) if guest.new is not None else guest
            )

    def _compete(self, node: ProviderUuid, here: Iterable[Promise]) -> None:
        """A move here that has begun of a guest that is in another one here."""
        moving = {one.instance: one.move for one in here if one.move is not None}
        for id, move in self.moves.items():
            if (
                move.dest == node
                and move.status == "pre-migrating"
                and moving.get(move.instance, id) != id
            ):
                self.moves[id] = replace(move, status="error")

    # --- who has what -----------------------------------------------------------------------------

    def open_of(self, name: str) -> list[Promise]:
        return [one for one in self.promises.values() if one.open and one.instance == name]

    def open_on(self, node: ProviderUuid) -> list[Promise]:
        return [one for one in self.promises.values() if one.open and one.node == node]

    def held(self, node: ProviderUuid, what: str) -> frozenset[Any]:
        """The ``cpus``, ``devices`` or ``units`` that claims on the node have."""
        return frozenset[Any]().union(
            *(getattr(one.got, what) for one in self.open_on(node) if one.got is not None)
        )

    def saw(self, promise: Promise, got: Got) -> None:
        """A claim was seen to have got this."""
        self.promises[promise.id] = replace(promise, got=got)

    # --- parts ------------------------------------------------------------------------------------

    def _ready(self, node: ProviderUuid) -> None:
        if node not in self.memory:
            raise Refused

    def _offered(self, node: ProviderUuid) -> None:
        if node in self.removed or not self.memory[node].available:
            raise Refused

    def _again(self, id: str) -> bool:
        """Whether it was promised before; what was given back is not promised again."""
        if id in self.promises and not self.promises[id].open:
            raise Refused
        return id in self.promises

    def _mine(self, agent: str, id: str) -> Promise:
        """A claim that an agent may work on, because it, its guest or an end of its move is on a
        node of this agent, or was on one that is no more.
        """
        promise = self.promises.get(id)
        if promise is None:
            raise Refused
        places = {promise.node, *(one.node for one in self.open_of(promise.instance))}
        if promise.purpose == "move":
            places |= {self.moves[id].source, self.moves[id].dest}
        if not any(
            one in self.removed or (one in self.memory and self.hosts[one] == agent)
            for one in places
        ):
            raise Refused
        return promise

    def _arriving(self, agent: str, id: str) -> tuple[Promise, Move, Guest]:
        promise = self._mine(agent, id)
        if promise.purpose != "move":
            raise Refused
        return promise, self.moves[id], self.guests[promise.instance]

    def _is_on(self, guest: Guest, node: ProviderUuid) -> bool:
        return guest.host == self.hosts[node] and guest.node in (None, node)

    def _halves(self, move: str, half: str) -> list[Promise]:
        return [
            one
            for one in self.promises.values()
            if one.open and one.move == move and one.half == half
        ]

    def _change(self, promise: Promise, **changes: Any) -> None:
        self.promises[promise.id] = replace(self.promises[promise.id], hour=self.hour, **changes)

    def _release(self, promise: Promise) -> None:
        if promise.open:
            self._change(promise, state="released", got=None)

    def _give_back(self, promises: Iterable[Promise]) -> None:
        """Release them, and the devices that a guest got where it has nothing else."""
        for one in promises:
            self._release(one)
        for instance in {one.instance for one in promises}:
            staying = {one.node for one in self.open_of(instance) if one.purpose != "devices"}
            for one in self.open_of(instance):
                if one.node not in staying:
                    self._release(one)

    def _back(self, move: str) -> None:
        for one in self._halves(move, "old"):
            self._change(one, half="only", move=None)

    def _abort_move(self, promise: Promise) -> None:
        move, guest = self.moves[promise.id], self.guests[promise.instance]
        if not promise.open and not move.goes_on:
            return
        if promise.state == "consumed" or move.status in WAITING:
            raise Refused
        self._give_back([promise])
        self._back(promise.id)
        if move.goes_on:
            self.moves[promise.id] = replace(move, status=GIVEN_UP[move.type])
        if guest.new is not None:
            self.guests[promise.instance] = replace(guest, old=None, new=None)

    def _promise(
        self,
        id: str,
        purpose: str,
        name: str,
        node: ProviderUuid,
        flavor: Flavor,
        wanted: Wanted,
        **more: Any,
    ) -> None:
        """Promise what is asked for, if there is room."""
        used = sum(one.amounts.vcpus for one in self.open_on(node))
        if wanted.vcpus is not None and used + flavor.vcpus > wanted.vcpus:
            raise Refused(room=True)
        cpus = flavor.vcpus if flavor.extra_specs else 0
        free = self.memory[node].online - self.held(node, "cpus")
        if cpus and all(len(cell & free) < cpus for cell in CELLS):
            raise Refused(room=True)
        self._check_devices(node, wanted.devices)
        held = self.held(node, "units")
        # Units of a class of which the host has none are not assigned.
        units = wanted.units if self.units[node] | held else 0
        if units > len(self.units[node] - held):
            raise Refused(room=True)
        self.promises[id] = Promise(
            id=id,
            purpose=purpose,
            instance=name,
            node=node,
            amounts=flavor.amounts(volume_backed=False),
            cpus=cpus,
            devices=wanted.devices,
            units=units,
            hour=self.hour,
            **more,
        )

    def _check_devices(self, node: ProviderUuid, types: tuple[str, ...]) -> None:
        held = self.held(node, "devices")
        blocked = {*held, *(VFS if PF in held else ()), *((PF,) if held & set(VFS) else ())}
        enough = all(
            len({*DEVICES[kind]} & self.devices[node] - blocked) >= types.count(kind)
            for kind in types
        )
        if not enough or {"type-PF", "type-VF"} <= set(types):
            raise Refused(room=True)
