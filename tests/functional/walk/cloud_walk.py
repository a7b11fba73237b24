"""Walks two hosts, their agents, their guests and their Placement through all that may happen, and
holds every step against an account of its own.
"""

import contextlib
import functools
import os
import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable, MoveStep
from agent.model.node_records import NodeRecords
from agent.model.report import NodeReport
from agent.store.records import Records
from agent.store.store import Store, open_store
from agent.tracker.errors import TrackerError
from agent.tree.policy import Layout
from tests.functional.walk.cloud_account import (
    CloudAccount,
    Held,
    Holdings,
    Offered,
    Offers,
    Share,
    by_host,
    offered,
)
from tests.functional.walk.walked_guest import WalkedGuest
from tests.support import faults
from tests.support.broken_store import AFTER_COMMIT, Fault
from tests.support.broken_store import Kind as FaultKind
from tests.support.crashes import FAULTS, SAVE_KINDS, Crash, Disturbance, disturbed
from tests.support.database_trouble import KINDS as DATABASE_KINDS
from tests.support.machine import CLASS_OF, Lie, random_lie, random_machine
from tests.support.orchestrator import PINNED, PLAIN, WITH_FUNCTION, WITH_GPU, WITH_UNIT, Kind
from tests.support.placement import PlacementServer
from tests.support.tracking import Time, settled
from tests.support.walked_host import WalkedHost

THEIR_CLASS, THEIR_TRAIT = "CUSTOM_THEIR_CLASS", "CUSTOM_THEIRS"
KINDS = (PLAIN, PINNED, PINNED, WITH_UNIT, WITH_FUNCTION, WITH_GPU)
MOST_GUESTS = 8
LAST = int(os.environ.get("CLOUD_LAST", "40"))
"""Steps that a failure tells."""
TURNS = 300
"""In which all that was begun has to come to its end."""
MINUTE, LEASE, REFRESH = 60.0, 300.0, 601.0
PASSES = 6
SQL_ERROR, OTHERS = "sql-error", "others"
"""What happens to a pass besides the faults of Placement."""
AMOUNTS = ("VCPU", "MEMORY_MB", "DISK_GB")
EACH_STEP = (
    "the records are those of the account, and no CPU, device or unit has two holders",
    "every allocation is of whom and where it has to be",
    "the providers offer what the hosts have",
    "nothing of others has changed",
    "nothing is allocated twice",
)
"""The invariants that hold after each step."""
USAGE = "an agent's usage is the sum of the claims"
QUIET = "at rest: a pass writes nothing, makes two requests at most, and reports nothing"
NO_PAST = "at rest: the tree is that of an agent without a past"
LATER = ("node.elsewhere", "node.not-ready", "node.unavailable")
"""Refusals that pass."""
ACTIONS = {
    "go on": 50,
    "begin": 14,
    "audit": 16,
    "kill": 3,
    "start": 6,
    "wait": 3,
    "lose something": 2,
    "find something": 3,
    "fall silent": 1,
    "lie": 2,
    "spoil the store": 1,
    "change the hardware": 1,
    "meddle": 5,
    "lose a lease": 1,
    "settle": 1,
}
"""How often each is done."""


class CloudWalk:
    """``shared``: both hosts have the store at ``url``; else each has one of its own. All that
    happens follows from ``seed``.
    """

    def __init__(
        self,
        placement: PlacementServer,
        reference: PlacementServer,
        folder: Path,
        url: str | None,
        seed: int,
        time: Time,
    ) -> None:
        self.placement, self.folder, self.url, self.seed, self.time = (
            placement,
            folder,
            url,
            seed,
            time,
        )
        self.shared = url is not None
        self.dice = random.Random(seed)
        self.hosts = tuple(
            WalkedHost(
                name,
                placement,
                folder / name,
                url,
                time,
                machine=random_machine(random.Random(f"{seed} {name}")),
            )
            for name in ("a", "b")
        )
        self.reference = reference
        """Where an agent without a past makes the tree that has to be there at rest."""
        self.guests: list[WalkedGuest] = []
        self.account, self.holdings, self.offers = CloudAccount(), Holdings(), Offers()
        self.passed: dict[str, set[Layout]] = {}
        """The hosts that agents have had in hand since they were looked at last, and in which layouts."""
        self.calm: set[str] = set()
        """Those of them where nothing was in the way of the last one."""
        self.lossy: set[str] = set()
        """The hosts whose agents hold what is gone, or may do so still although it is back."""
        self.shrunk: set[str] = set()
        """The hosts that have less than they had, so that guests may have more of them than they offer."""
        self.others: set[str] = set()
        self.children: dict[str, Any] = {}
        self.traits: set[str] = set()
        self.rival: Generator[str, None, None] | None = None
        self.met: Counter[str] = Counter()
        """What was done, and how it ended."""
        self.faults: Counter[str] = Counter()
        """What came to happen of that which is in the way."""
        self.checked: Counter[str] = Counter()
        """How often each invariant was checked, of all hosts or of one."""
        self.told: deque[str] = deque(maxlen=LAST)
        self.step, self._odds = 0, 0.15
        self._looking: dict[str, Store] = {}
        for host in self.hosts:
            host.alone = functools.partial(self._is_alone, host)

    def summary(self) -> dict[str, Any]:
        """What happened, for JSON."""
        return {
            "seed": self.seed,
            "stores": "one" if self.shared else "each",
            "steps": self.step,
            "met": dict(sorted(self.met.items())),
            "faults": {kind: hits for kind, hits in sorted(self.faults.items()) if hits},
            "checked": dict(self.checked),
        }

    # --- the walk ---------------------------------------------------------------------------------

    def go(self, steps: int) -> None:
        """So many steps, and then everything has to come to rest."""
        try:
            for host in self.hosts:
                host.start()
                self._passes(host, host.layout, calm=True)
            self.check()
            for step in range(1, steps + 1):
                self.step = step
                self.time.pass_by(self.dice.uniform(0, 20))
                self.one_step()
                self.check()
            self.settle()
        except (Exception, Crash) as error:
            lines = "\n".join(self.told)
            raise AssertionError(
                f"step {self.step} of seed {self.seed}:\n{lines}\n{type(error).__name__}: {error}"
            ) from error
        finally:
            for host in self.hosts:
                host.kill()
            for store in self._looking.values():
                store.close()

    def one_step(self) -> None:
        """Whatever comes."""
        action = self.dice.choices(list(ACTIONS), ACTIONS.values())[0]
        self.met[action] += 1
        getattr(self, "_" + action.replace(" ", "_"))()

    def tell(self, what: str) -> None:
        """For whoever has to find out why."""
        self.told.append(f"{self.step:5} {what}")

    # --- guests -----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if busy := [
            one
            for one in self.guests
            if one.script is not None and (one.waits is None or one.waits.serves)
        ]:
            self._advance(self.dice.choice(busy))

    def _advance(self, guest: WalkedGuest) -> None:
        """One more of the things that are done for a guest."""
        assert guest.script is not None
        told = next(guest.script, None)
        self.tell(f"{guest}: {told or 'done'}")
        if told is None:
            guest.script = None
        if guest.gone:
            self.guests.remove(guest)

    def _begin(self) -> None:
        """Something new with a guest, or its end whatever goes on."""
        busy, idle = (
            [one for one in self.guests if one.script is not None],
            [one for one in self.guests if one.script is None],
        )
        if busy and self.dice.random() < 0.1:
            self._ends(self.dice.choice(busy))
        elif len(self.guests) < MOST_GUESTS and (not idle or self.dice.random() < 0.4):
            guest, host = (
                WalkedGuest(self, self.dice.choice(KINDS), self._more_dice()),
                self.dice.choice(self.hosts),
            )
            guest.owner = host  # type: ignore[assignment]
            self.guests.append(guest)
            self._begins(guest, f"build on {host.name}", guest.built(host))
        elif idle:
            self._moves(self.dice.choice(idle))

    def _moves(self, guest: WalkedGuest) -> None:
        dice, source = self.dice, guest.host
        other = next(one for one in self.hosts if one is not source)
        what = dice.choice(["resize", "resize", "cold", "live", "evacuate", "end"])
        cold_end: MoveStep = dice.choice(["confirm", "revert", "abort"])
        live_end: MoveStep = dice.choice(["finish", "finish", "abort"])
        if what == "end":
            self._ends(guest)
        elif what == "resize":
            dest, flavor = (
                dice.choice(self.hosts),
                guest.kind.small if guest.flavor == guest.kind.large else guest.kind.large,
            )
            self._begins(
                guest,
                f"resize to {dest.name}, {cold_end}",
                guest.moved_cold(dest, flavor, cold_end),
            )
        elif what == "cold":
            self._begins(
                guest,
                f"migrate to {other.name}, {cold_end}",
                guest.moved_cold(other, None, cold_end),
            )
        elif what == "live":
            self._begins(
                guest,
                f"migrate live to {other.name}, {live_end}",
                guest.moved_live(other, live_end),
            )
        elif not other.dead:
            self._dies(source)
            self._begins(
                guest, f"evacuate to {other.name}, {live_end}", guest.evacuated(other, live_end)
            )

    def _ends(self, guest: WalkedGuest) -> None:
        self._begins(guest, "delete", guest.deleted())

    def _begins(self, guest: WalkedGuest, what: str, script: Any) -> None:
        self.met[what.partition(" ")[0]] += 1
        self.tell(f"{guest}: {what}")
        guest.script = script

    # --- hosts ------------------------------------------------------------------------------------

    def _audit(self) -> None:
        if up := [one for one in self.hosts if one.up]:
            self._audits(self.dice.choice(up), self._disturbance())

    def _audits(
        self,
        host: WalkedHost,
        disturbance: Disturbance | None = None,
        *,
        start: bool = False,
        back: bool = False,
    ) -> None:
        """A pass, or the first one of a new process; the process may end in it. ``back``: with the
        layout that it had before.
        """
        fault = self._fault() if disturbance is None else None
        host.strikes(fault)
        self._passes(host, host.layout)
        trouble = self._trouble(host, disturbance)
        done = False
        with trouble, contextlib.suppress(Crash):
            report = host.start() if start else host.audit()
            done = True
        if not done:
            host.kill()
        self._strikes_no_more(host, fault)
        how = _told_of(report) if done else "the end of the process"
        self.tell(
            f"{'start' if start else 'audit'} of {host.name} {host.layout}: "
            f"{how}{f', with {disturbance or fault}' if disturbance or fault else ''}"
        )
        self.met[f"pass: {report.state if done else 'crash'}"] += 1
        calm = (
            done
            and disturbance is None
            and fault is None
            and host.lie is None
            and not host.offline
            and host.database.kind is None
            and self.rival is None
        )
        refused = done and report.state == "refused" and self._strangers(host)
        well = done and report.state in ("in-sync", "changed")
        assert not calm or host.lost or refused or well, (report.errors, report.drift)
        self._passes(host, host.layout, calm=calm and well)
        if done and report.state == "refused":
            # The operator does as he is told.
            assert not back, report.errors
            host.kill()
            host.layout = "nested" if host.layout == "flat" else "flat"
            self._audits(host, start=True, back=True)

    def _trouble(
        self, host: WalkedHost, disturbance: Disturbance | None
    ) -> contextlib.AbstractContextManager[None]:
        """What happens to a pass."""
        if disturbance is None:
            return contextlib.nullcontext()
        if disturbance.kind == SQL_ERROR:
            return self._sql_error(host, disturbance.at)
        if disturbance.kind == OTHERS:
            return self._between(disturbance.at)
        hits = Counter[str]()
        return _named(disturbed(self.placement, disturbance, hits), hits, self.faults)

    @contextlib.contextmanager
    def _sql_error(self, host: WalkedHost, at: int) -> Iterator[None]:
        """A statement fails, whatever it is."""
        hits, host.database.at = host.database.hits, at
        yield
        host.database.at = None
        self.faults["a statement of SQL"] += host.database.hits - hits

    @contextlib.contextmanager
    def _between(self, at: int) -> Iterator[None]:
        """Others do something between two requests of the agent."""
        rule = self.placement.faults.add(faults.before(lambda _: self._meddle()), skip=at)
        yield
        self.placement.faults.clear()
        self.faults["others between two requests"] += rule.hits

    def _passes(self, host: WalkedHost, layout: Layout, *, calm: bool = False) -> None:
        """An agent has the node in hand, which may change what its providers offer. ``calm``: and
        nothing is in its way.
        """
        self.passed.setdefault(host.name, set()).add(layout)
        self.calm.discard(host.name)
        if calm:
            self.calm.add(host.name)
            if not host.lost:
                self.lossy.discard(host.name)

    def _strangers(self, host: WalkedHost) -> set[str]:
        """Who holds something there that no record of the host tells of, so that nobody knows of
        which cell.
        """
        known = {one.guest for one in self.account.shares.values() if one.host == host.name}
        known |= {
            one.move
            for one in self.account.shares.values()
            if one.host == host.name and one.half == "old" and one.move
        }
        return {
            consumer for consumer, held in self.holdings.shares.items() if host.name in held
        } - known

    def _kill(self) -> None:
        host = self.dice.choice(self.hosts)
        self.faults["kill -9"] += host.up
        self.tell(f"kill -9 of {host.name}")
        host.kill()

    def _dies(self, host: WalkedHost) -> None:
        """With all that runs on it."""
        self.faults["a host dies"] += 1
        self.tell(f"{host.name} dies")
        host.kill()
        host.dead = True
        host.domains = {guest: replace(one, state="stopped") for guest, one in host.domains.items()}

    def _start(self) -> None:
        """An agent is started, or started anew; a dead host is repaired now and then."""
        host = self.dice.choice(self.hosts)
        if host.dead and self.dice.random() < 0.5:
            return
        host.dead = False
        if host.up and self.dice.random() < 0.5:
            host.stop()
        host.kill()
        layout = self.dice.choice(["flat", "nested"])
        host.layout = layout
        self._audits(host, self._disturbance(), start=True)

    def _wait(self) -> None:
        minutes = self.dice.choice([1, 6, 12, 40, 100])
        self.tell(f"{minutes} minutes")
        self.time.pass_by(minutes * MINUTE)

    def _lose_something(self) -> None:
        host, one = self.dice.choice(self.hosts), self.dice.choice(sorted(CLASS_OF))
        host.lost.add(one)
        self.lossy.add(host.name)
        self.faults["a device goes"] += 1
        self.tell(f"{host.name} loses {one}")

    def _find_something(self) -> None:
        host = self.dice.choice(self.hosts)
        host.lie = host.database.kind = None
        host.offline = frozenset()
        if gone := host.lost - host.machine.absent:
            one = self.dice.choice(sorted(gone))
            host.lost.remove(one)
            self.tell(f"{host.name} has {one} again")

    def _fall_silent(self) -> None:
        host = self.dice.choice(self.hosts)
        host.lie = Lie("partial", ("pci",))
        self.faults["a driver lies: partial"] += 1
        self.tell(f"{host.name} cannot list its devices")

    def _lie(self) -> None:
        host = self.dice.choice(self.hosts)
        host.lie = random_lie(self.dice)
        self.faults[f"a driver lies: {host.lie.kind}"] += 1
        self.tell(f"the driver of {host.name} gives wrong answers: {host.lie}")

    def _spoil_the_store(self) -> None:
        host = self.dice.choice(self.hosts)
        host.database.kind = self.dice.choice(DATABASE_KINDS)
        self.faults[f"a store is {host.database.kind}"] += 1
        self.tell(f"the store of {host.name} is {host.database.kind}")

    def _change_the_hardware(self) -> None:
        """Memory, disk, or the shared CPUs that run: an agent does not start while one of the
        operator's is offline.
        """
        host, dice = self.dice.choice(self.hosts), self.dice
        host.memory_mib, host.disk_gib = (
            dice.choice([131072, 163840, 196608]),
            dice.choice([1500, 2000, 3000]),
        )
        shared = sorted(host.machine.shared)
        host.offline = frozenset(dice.sample(shared, dice.choice([0, 0, 1, len(shared) - 1])))
        self.shrunk.add(host.name)
        self.faults["the hardware changes"] += 1
        self.tell(
            f"{host.name} has {host.memory_mib} MiB, {host.disk_gib} GiB, and {sorted(host.offline)} are offline"
        )

    # --- others -----------------------------------------------------------------------------------

    def _meddle(self) -> None:
        """Somebody else does something in Placement: to what is his, or beside what is ours."""
        other, dump = self.placement.other, self.placement.dump()
        places = self._hosts_of(dump)
        ours = sorted(uuid for uuid in places if uuid not in self.children)
        what = self.dice.choice(
            ["child", "trait", "consumer", "consumer", "go", "go", "inventory", "untrait", "delete"]
        )
        self.tell(f"others: {what}")
        if what == "child" and len(self.children) < 3:
            child = other.create_provider(
                f"theirs {len(self.children)}", str(self._uuid()), parent=self.dice.choice(ours)
            )
            other.set_inventory(child, {THEIR_CLASS: 2})
            consumer = other.claim({child: {THEIR_CLASS: 1}}, str(self._uuid()))
            self.children[child] = self._child(self.placement.dump()["providers"][child])
            self._theirs(consumer)
        elif what == "trait":
            host = self.dice.choice(self.hosts)
            other.set_traits(host.identity, {*other.traits(host.identity), THEIR_TRAIT})
            self.traits.add(host.identity)
        elif what == "consumer":
            self._theirs_of(self.dice.choice(ours), dump)
        elif what == "go" and self.others:
            gone = self.dice.choice(sorted(self.others))
            other.release(gone)
            self.others.remove(gone)
            self.holdings.shares.pop(gone)
        elif what in ("inventory", "untrait", "delete"):
            self._damage(what, self.dice.choice(ours), dump)
        self.faults[f"others: {what}"] += self.placement.dump() != dump

    def _damage(self, what: str, provider: str, dump: Mapping[str, Any]) -> None:
        """Others write what is ours; the next pass takes that back."""
        other, found = self.placement.other, dump["providers"][provider]
        root = provider in {host.identity for host in self.hosts}
        if what == "inventory" and root and "VCPU" in found["inventories"]:
            record = found["inventories"]["VCPU"]
            more = {"VCPU": {**record, "total": record["total"] + 3}}
            other.set_inventory(provider, {**found["inventories"], **more})
        elif what == "untrait" and found["traits"]:
            # But for what says whose the node is: who takes that away takes the node.
            kept = [one for one in found["traits"] if one.startswith("CUSTOM_")]
            other.set_traits(provider, kept)
        elif what == "delete" and not root:
            held = any(provider in one["allocations"] for one in dump["consumers"].values())
            parent = any(one["parent"] == provider for one in dump["providers"].values())
            if not held and not parent:
                other.delete_provider(provider)
        after = self.placement.dump()
        for host in self.hosts:
            self.offers.last[host.name] = self._offered(host, after, self._hosts_of(after))

    def _theirs_of(self, provider: str, dump: Mapping[str, Any]) -> None:
        """A consumer that no record knows takes a little of a provider."""
        classes = [
            name
            for name in dump["providers"][provider]["inventories"]
            if name in ("VCPU", "MEMORY_MB", "PCPU")
        ]
        consumer = str(self._uuid())
        if classes and self.placement.other.can_claim(
            {provider: {self.dice.choice(classes): 1}}, consumer
        ):
            self._theirs(consumer)

    def _theirs(self, consumer: str) -> None:
        self.others.add(consumer)
        self.wrote(consumer)

    def _lose_a_lease(self) -> None:
        """An agent that has a copy of a host's identity takes the node over once its lease has run
        out, and gives it back.
        """
        if self.rival is None:
            host = self.dice.choice(self.hosts)
            if self._just_renewed(host):
                self._comes_too_early(self._rival_of(host))
                return
            self.rival = self._rivalry(host)
        if next(self.rival, None) is None:
            self.rival = None

    def _rivalry(self, host: WalkedHost) -> Generator[str, None, None]:
        self.time.pass_by(LEASE + 1)
        rival = self._rival_of(host)
        self.faults["a second agent, once the lease has ended"] += 1
        self._passes(host, rival.layout)
        report = rival.start()
        self.tell(f"{rival.name} takes the node of {host.name}: {report.state} {report.errors}")
        for _ in range(2):
            yield "has it"
            self._shows_the_same(rival, host)
            self._passes(host, rival.layout)
            report = rival.audit()
            self.tell(f"{rival.name}: {report.state} {[one.message for one in report.errors]}")
        rival.stop()
        self.tell(f"{rival.name} lets go")

    def _just_renewed(self, host: WalkedHost) -> bool:
        """Now and then, whether its agent has just renewed its lease."""
        if not host.up or self.dice.random() >= 0.4:
            return False
        self._audits(host)
        return host.name in self.calm

    def _rival_of(self, host: WalkedHost) -> WalkedHost:
        """Another agent with a copy of its identity."""
        rival = WalkedHost(
            f"rival-{self.step}",
            self.placement,
            host.folder,
            self.url,
            self.time,
            node=host.node.removeprefix("node-"),
        )
        rival.layout = self.dice.choice(["flat", "nested"])
        self._shows_the_same(rival, host)
        return rival

    @staticmethod
    def _shows_the_same(rival: WalkedHost, host: WalkedHost) -> None:
        """Both agents ask one hypervisor."""
        rival.machine, rival.lost, rival.domains = host.machine, host.lost, host.domains
        rival.memory_mib, rival.disk_gib, rival.offline = (
            host.memory_mib,
            host.disk_gib,
            host.offline,
        )
        rival.lie = host.lie

    def _comes_too_early(self, rival: WalkedHost) -> None:
        """An agent whose node another one has writes nothing."""
        self.placement.clear()
        report = rival.start()
        self.faults["a second agent, too early"] += 1
        self.tell(f"{rival.name} comes too early: {report.state} {report.errors}")
        assert self.placement.writes() == [], self.placement.lines()
        rival.stop()

    # --- what scripts do --------------------------------------------------------------------------

    def tells(self, host: WalkedHost, other: WalkedHost) -> bool:
        """Whether what is said to one agent is on record of the other's node as well."""
        return self.shared or host is other

    def cells(self, host: WalkedHost, allocations: Iterable[str]) -> frozenset[int]:
        """The host cells of these providers, as far as its agent counts by cells now."""
        names = {uuid: one["name"] for uuid, one in self.placement.dump()["providers"].items()}
        found = [name for uuid in allocations if "_NUMA" in (name := names.get(uuid, ""))]
        return (
            frozenset(int(name.partition("_NUMA")[2]) for name in found)
            if host.layout == "nested"
            else frozenset()
        )

    def cards(self, allocations: Mapping[str, Any], kind: Kind) -> frozenset[str]:
        """The addresses of the cards of which a guest of that kind has its device, as far as they
        are still there.
        """
        names = {uuid: one["name"] for uuid, one in self.placement.dump()["providers"].items()}
        return frozenset(
            names[uuid].rpartition("_")[2].lower()
            for uuid, one in allocations.items()
            if kind.device in one["resources"] and uuid in names
        )

    def attempt(
        self,
        host: WalkedHost,
        call: Callable[[ApiClient], object],
        change: Callable[[CloudAccount], object],
    ) -> tuple[bool, ApiProblem | None]:
        """Ask once. Returns whether there was an answer, and a refusal for want of room."""
        after = self.account.copy()
        change(after)
        fault = self._fault()
        host.strikes(fault)
        try:
            call(host.client)
        except Crash:
            self.tell(f"{host.name} ends in the middle: {fault}")
            host.kill()
            return self._lost(after)
        except (ApiProblem, ApiUnreachable) as error:
            if isinstance(error, ApiProblem) and error.code == "resources.unavailable":
                self.met["refused"] += 1
                return True, error
            if isinstance(error, ApiProblem) and error.status != 503 and error.code not in LATER:
                raise
            self.tell(f"{host.name} does not do it: {error}")
            return self._lost(after)
        finally:
            self._strikes_no_more(host, fault)
        self._took(after)
        if self.dice.random() < 0.2:
            call(host.client)
        return True, None

    def _lost(self, after: CloudAccount) -> tuple[bool, None]:
        """Nobody heard an answer: it was done, or it was not."""
        if not after.wrong(self.records()):
            self._took(after)
        return False, None

    def _took(self, after: CloudAccount) -> None:
        """That is how it is now; what is over with it agents may remove before its orchestrator
        says any more.
        """
        self.account = after
        self.holdings.over |= {
            (consumer, host)
            for consumer, host in after.over
            if host in self.holdings.shares.get(consumer, {})
        }
        after.over.clear()

    def wrote(self, *consumers: str) -> None:
        """The orchestrator, or somebody else, has written what these hold."""
        dump = self.placement.dump()
        hosts = self._hosts_of(dump)
        for one in consumers:
            self.holdings.shares[one] = by_host(
                dump["consumers"].get(one, {"allocations": {}})["allocations"], hosts, _names(dump)
            )
            self.holdings.over = {
                (consumer, host)
                for consumer, host in self.holdings.over
                if consumer != one or host in self.holdings.shares[one]
            }

    def is_over(self, consumer: str, *hosts: WalkedHost) -> None:
        """What somebody holds there nobody needs any more."""
        self.holdings.over |= {
            (consumer, host.name) for host in hosts if self.holds(consumer, host)
        }

    def holds(self, consumer: str, host: WalkedHost) -> bool:
        """Whether somebody holds anything there still."""
        return host.name in self.holdings.shares.get(consumer, {})

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        """Records, memory and Placement are as the account says."""
        records, dump = self.records(), self.placement.dump()
        self.checked.update(EACH_STEP)
        wrong = self.account.wrong(records)
        self.account.saw(records)
        wrong += [line for host in self.hosts if host.serves for line in self._memory(host)]
        hosts, names = self._hosts_of(dump), _names(dump)
        held = {
            uuid: by_host(one["allocations"], hosts, names)
            for uuid, one in dump["consumers"].items()
            if one["allocations"]
        }
        wrong += self.holdings.wrong(held, self._may_be_moved)
        wrong += [
            line
            for consumer, of in held.items()
            for host in of
            for line in self._misplaced(consumer, host, of[host])
        ]
        wrong += [line for host in self.hosts for line in self._offers(host, dump, hosts)]
        wrong += [
            f"{uuid} of somebody else is not as it was"
            for uuid, one in self.children.items()
            if self._child(dump["providers"].get(uuid)) != one
        ]
        wrong += [
            f"{uuid} has lost a trait of somebody else"
            for uuid in self.traits
            if THEIR_TRAIT not in dump["providers"][uuid]["traits"]
        ]
        wrong += self._overcommitted(dump, hosts)
        self.passed.clear()
        self.calm.clear()
        assert not wrong, "\n".join(wrong)

    def _may_be_moved(self, consumer: str, host: str, before: Held, after: Held) -> bool:
        """Whether a pass may have moved what somebody holds there: dedicated CPUs between root and
        cells, devices to the card of those that he has.
        """
        if host not in self.passed or sum(before.values(), Counter()) != sum(
            after.values(), Counter()
        ):
            return False
        share = self._share_of(consumer, host)
        for name in {*sum(before.values(), Counter())}:
            was, now = _places(before, name), _places(after, name)
            right = (
                ("" in was) != ("" in now)
                if name == "PCPU"
                else share is not None and share.placed.get(name) == now
            )
            if was != now and not right:
                return False
        return True

    def _misplaced(self, consumer: str, host: str, held: Held) -> Iterator[str]:
        """What of that which somebody holds is of another cell or card than that which his claim
        has.
        """
        share = self._share_of(consumer, host)
        for name, wanted in share.placed.items() if share is not None else ():
            found = _places(held, name)
            if found and "" not in found and found != wanted:
                yield (
                    f"consumer {consumer} holds {name} of {sorted(found)} of {host}, and {share} "
                    f"has {sorted(wanted)}"
                )

    def _share_of(self, consumer: str, host: str) -> Share | None:
        """The claim on a host for which somebody holds something there, if there is just one that
        it can be for.
        """
        if (consumer, host) in self.holdings.over:
            return None
        shares = [one for one in self.account.shares.values() if one.host == host]
        for guest in self.guests:
            mine = [one for one in shares if one.guest == guest.uuid]
            moving = [one for one in mine if one.half == "old"]
            beside = guest.holds_by_migration(host)
            if consumer == guest.migration:
                return next(iter(moving or [one for one in mine if one.half == "only"]), None)
            if consumer == guest.uuid:
                own = [one for one in mine if one.half == "new" or not beside]
                return own[0] if len(own) == 1 else None
        return None

    def _offers(
        self, host: WalkedHost, dump: Mapping[str, Any], hosts: Mapping[str, str]
    ) -> Iterator[str]:
        """What its providers offer in all is what it has; with what is held of each of them that
        says what is free.
        """
        held = {
            one
            for share in self.account.shares.values()
            if share.host == host.name and share.got
            for one in share.things
        }
        found = self._offered(host, dump, hosts)
        used = {
            (_behind(dump["providers"][uuid]["name"]), name): amount
            for (uuid, name), amount in _used(dump).items()
            if hosts.get(uuid) == host.name
        }
        yield from self.offers.wrong(
            host,
            found,
            self.passed.get(host.name, set()),
            calm=host.name in self.calm,
            held=held,
            used=used,
        )

    def _offered(
        self, host: WalkedHost, dump: Mapping[str, Any], hosts: Mapping[str, str]
    ) -> Offered:
        """What the providers of a host offer."""
        return {
            (_behind(one["name"]), name): offered(record)
            for uuid, one in dump["providers"].items()
            if hosts.get(uuid) == host.name and uuid not in self.children
            for name, record in one["inventories"].items()
        }

    def _memory(self, host: WalkedHost) -> Iterator[str]:
        tracking = host.agent.tracking
        try:
            state = tracking.tracker.view(host.identity)
        except TrackerError:
            return
        settled(
            cast(
                Any,
                SimpleNamespace(
                    node=host.identity, records=host.agent.records, tracker=tracking.tracker
                ),
            )
        )
        self.checked[USAGE] += 1
        used, reserved = state.used, state.host.reserved
        found = (
            used.memory_mb - reserved.memory_mb,
            used.vcpus - reserved.vcpus,
            used.disk_mb - reserved.disk_mb,
        )
        if found != self.account.used(host.name):
            yield f"{host.name} counts {found} instead of {self.account.used(host.name)}"

    def _overcommitted(self, dump: Mapping[str, Any], hosts: Mapping[str, str]) -> Iterator[str]:
        used = _used(dump)
        for uuid, one in dump["providers"].items():
            for name, record in (
                one["inventories"].items() if hosts.get(uuid) not in self.lossy else ()
            ):
                less = hosts.get(uuid) in self.shrunk and name in AMOUNTS
                if used[uuid, name] > offered(record) and not less:
                    yield (
                        f"{one['name']} has {offered(record)} of {name}, and {used[uuid, name]} "
                        "are allocated"
                    )

    # --- rest -------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self.settle()

    def settle(self) -> None:
        """Nothing disturbs any more, and all comes to its end: then everything is
        exact, and quiet.
        """
        self.tell("rest")
        while self.rival is not None:
            self._lose_a_lease()
            # Before the hosts have again what they lost.
            self.check()
        for host in self.hosts:
            host.lost = set(host.machine.absent)
            host.lie, host.database.kind, host.dead = None, None, False
            host.offline = frozenset()
        calm, self._odds = self._odds, 0.0
        for turn in range(TURNS):
            self._turn(with_audits=turn % 3 == 0)
            if not any(one.script for one in self.guests) and not self.holdings.left():
                break
        self._odds = calm
        assert not (
            left := [*map(str, (one for one in self.guests if one.script)), *self.holdings.left()]
        ), left
        for host in self.hosts:
            self._is_quiet(host)

    def _turn(self, *, with_audits: bool) -> None:
        for host in self.hosts if with_audits else ():
            self._audits(host, start=not host.up)
        for guest in [one for one in self.guests if one.script is not None]:
            self._advance(guest)
        self.time.pass_by(MINUTE * 6)
        self.check()

    def _is_quiet(self, host: WalkedHost) -> None:
        """Nothing is left to do or to tell of it, and guests can have all that nobody has."""
        for _ in range(PASSES):
            # What somebody took away moves no generation, and is found when it is asked for in
            # turn.
            self.time.pass_by(REFRESH)
            report = host.audit()
            self._passes(host, host.layout, calm=True)
        self.check()
        drift = [
            one
            for one in report.drift
            if one.consumer not in self.others and one.provider not in self.children
        ]
        assert (report.state, drift, list(report.errors)) == ("in-sync", [], []), (
            host.name,
            report.state,
            drift,
            report.errors,
        )
        self.placement.clear()
        host.audit()
        self.checked[QUIET] += 1
        assert (self.placement.writes(), self.placement.count()) == (
            [],
            min(self.placement.count(), 2),
        ), self.placement.lines()
        self._passes(host, host.layout, calm=True)
        self.check()
        dump = self.placement.dump()
        self._is_as_without_a_past(host, dump)
        marks = [
            one
            for one in dump["providers"][host.identity]["traits"]
            if one.startswith("CUSTOM_COMPUTE_NODE_AGENT_")
        ]
        assert len(marks) == 1, marks
        for guest in self.guests:
            if guest.host is host:
                found = host.client.instance(guest.uuid)
                assert (
                    found["host"],
                    found["vm_state"],
                    found["task_state"],
                    found["flavor"]["id"],
                    found["new_flavor"],
                ) == (host.name, "active", None, guest.flavor.id, None), found

    def _is_as_without_a_past(self, host: WalkedHost, dump: Mapping[str, Any]) -> None:
        """The tree is the one that an agent without a past makes in an empty Placement, with what
        is of others.
        """
        self.reference.reset()
        twin = WalkedHost(
            host.name.removeprefix("host-"),
            self.reference,
            self.folder / f"twin-{self.checked[NO_PAST]}",
            None,
            self.time,
            machine=host.machine,
        )
        twin.layout, twin.lost = host.layout, host.lost
        twin.memory_mib, twin.disk_gib, twin.offline = host.memory_mib, host.disk_gib, host.offline
        report = twin.start()
        assert report.state == "changed", report
        twin.kill()
        self.checked[NO_PAST] += 1
        wanted = self._tree(self.reference.dump(), host)
        found = self._tree(dump, host)
        # An empty one below which somebody else has a provider cannot go.
        for uuid in {dump["providers"][child]["parent"] for child in self.children}:
            name = dump["providers"][uuid]["name"]
            if name not in wanted and name in found:
                assert found.pop(name)[1:] == ({}, [], []), name
        assert found == wanted, f"{host.name} has the tree\n{found}\ninstead of\n{wanted}"

    def _tree(self, dump: Mapping[str, Any], host: WalkedHost) -> dict[str, Any]:
        """The agent's part of a host's tree, by the names of the providers."""
        hosts, names = self._hosts_of(dump), _names(dump)
        return {
            one["name"]: (
                names.get(one["parent"]),
                one["inventories"],
                sorted({*one["traits"]} - {THEIR_TRAIT}),
                one["aggregates"],
            )
            for uuid, one in sorted(dump["providers"].items())
            if hosts.get(uuid) == host.name and uuid not in self.children
        }

    # --- parts ------------------------------------------------------------------------------------

    def records(self) -> dict[str, NodeRecords]:
        """What is on record of each host."""
        found = {}
        for host in self.hosts:
            with Records(self._looked_at(host)).reading() as reading:
                node = reading.load(host.identity)
            assert node is not None
            found[host.name] = node
        return found

    def _looked_at(self, host: WalkedHost) -> Store:
        if host.name not in self._looking:
            folder = self.folder / "look" if self.shared else host.folder
            self._looking[host.name] = open_store(folder, self.url)
        return self._looking[host.name]

    def _is_alone(self, host: WalkedHost) -> bool:
        """Whether no other agent has its store open. Nobody looks at a store of its own meanwhile."""
        if not self.shared and (store := self._looking.pop(host.name, None)) is not None:
            store.close()
        return self.rival is None

    def _hosts_of(self, dump: Mapping[str, Any]) -> dict[str, str]:
        """The host of each provider of its tree."""
        roots = {host.identity: host.name for host in self.hosts}
        parents = {uuid: one["parent"] for uuid, one in dump["providers"].items()}

        def root(uuid: str) -> str:
            return uuid if parents[uuid] is None else root(parents[uuid])

        return {uuid: roots[top] for uuid in parents if (top := root(uuid)) in roots}

    @staticmethod
    def _child(provider: Mapping[str, Any] | None) -> Any:
        return provider and (
            provider["name"],
            provider["inventories"],
            provider["traits"],
            provider["aggregates"],
        )

    def _fault(self) -> Fault | None:
        """What happens to the next write."""
        if self.dice.random() >= self._odds:
            return None
        kind: FaultKind = self.dice.choice(["crash", "crash", "failure", "conflict"])
        # Nobody is faster once the commit is through.
        return Fault(
            kind, self.dice.choice([0, 1, 2, 3, *([AFTER_COMMIT] if kind != "conflict" else [])])
        )

    def _strikes_no_more(self, host: WalkedHost, fault: Fault | None) -> None:
        host.strikes(None)
        if fault is not None and fault.struck:
            self.faults[f"a write of records: {fault.kind}"] += 1

    def _disturbance(self) -> Disturbance | None:
        """What happens to a pass."""
        if self.dice.random() < 0.6:
            return None
        if self.dice.random() < 0.3:
            return Disturbance(self.dice.choice(SAVE_KINDS), self.dice.randint(0, 2))
        if self.dice.random() < 0.2:
            return Disturbance(SQL_ERROR, self.dice.choice([0, 1, 2, 4, 8, 16, 32]))
        if self.dice.random() < 0.15:
            return Disturbance(OTHERS, self.dice.choice([0, 1, 2, 3, 5, 8]))
        return Disturbance(
            self.dice.choice(sorted(FAULTS)), self.dice.choice([0, 0, 1, 2, 3, 5, 8])
        )

    def _more_dice(self) -> random.Random:
        return random.Random(self.dice.random())

    def _uuid(self) -> UUID:
        return UUID(int=self.dice.getrandbits(128), version=4)


@contextlib.contextmanager
def _named(
    disturbed: contextlib.AbstractContextManager[None],
    hits: Counter[str],
    faults: Counter[str],
) -> Iterator[None]:
    """Be ``disturbed``; its ``hits`` are counted in ``faults`` too."""
    try:
        with disturbed:
            yield
    finally:
        for kind, amount in hits.items():
            faults[f"a pass: {kind}"] += amount


def _told_of(report: NodeReport) -> str:
    errors = [one.message if one.code == "agent.error" else one.code for one in report.errors]
    return f"{report.state} {errors} {[one.kind for one in report.drift]}"


def _used(dump: Mapping[str, Any]) -> Counter[tuple[str, str]]:
    """What is allocated, by provider and class."""
    found: Counter[tuple[str, str]] = Counter()
    for consumer in dump["consumers"].values():
        for provider, held in consumer["allocations"].items():
            found.update({(provider, name): amount for name, amount in held.items()})
    return found


def _names(dump: Mapping[str, Any]) -> dict[str, str]:
    return {uuid: one["name"] for uuid, one in dump["providers"].items()}


def _behind(name: str) -> str:
    """What a provider's name has behind the node's."""
    return name.partition("_")[2]


def _places(held: Held, name: str) -> frozenset[str]:
    """The providers of which somebody has something of a class, by what is behind the node's name
    in theirs.
    """
    return frozenset(_behind(provider) for provider, amounts in held.items() if amounts[name])
