"""Walks two nodes with devices through whatever happens to them, and holds what is there against an
account of its own after each step.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import note

from agent.model.report import NodeReport
from agent.tracker.errors import ResourcesUnavailable
from agent.tracker.requests import DeviceClaim, InstanceClaim, MoveClaim
from agent.tracker.updates import InstanceUpdate
from tests.support import device_checks as checks
from tests.support.crashes import Disturbance, disturbed
from tests.support.device_account import Asked, DeviceAccount, HostAccount, Refused, with_cards
from tests.support.device_offers import CARDS, COUNTED_BY, KINDS, card_of, contradictory
from tests.support.device_site import ROOM, ROOTS, DeviceSite, Holdings, error_of, flavor, requests
from tests.support.placement import PlacementServer
from tests.support.tracking import guest, instance, uuid_of

PASSES = 4
Wanted = tuple[tuple[str, int], ...]
"""Aliases and how many devices by each."""


def everything() -> dict[str, HostAccount]:
    """Two hosts, the second a small one, with the same addresses."""
    first = {"P0", "P1", "F2", "V20", "V21", "F3", "V30", "V31", "V32", "V33"}
    second = {"P0", "F2", "V20", "V21"}
    return {
        "c1": HostAccount(set(first), {"P0": 0, "P1": 0, "PX": None, "F2": 0, "F3": 1}),
        "c2": HostAccount(set(second), {"P0": 0, "F2": 1}),
    }


class DeviceWalk:
    """``met``: what happened, and how often. ``late``: by guest, what its orchestrator has still to
    do in Placement.
    """

    def __init__(self, placement: PlacementServer, folder: Path, met: Counter[str]) -> None:
        self.placement, self.folder, self.met = placement, folder, met
        self.account = DeviceAccount(everything(), dict.fromkeys(CARDS, "none"))
        self.site, self.foreign = (
            DeviceSite(placement, folder / "first", self.account),
            checks.Foreign(),
        )
        self.late: dict[str, Callable[[], bool]] = {}
        self.wanted: dict[str, Wanted] = {}
        self.asked = 0

    # --- audits -----------------------------------------------------------------------------------

    def restart(
        self,
        choices: Mapping[str, str],
        layout: Any,
        report: bool,
        disturbance: Disturbance | None = None,
    ) -> None:
        """A new process with another configuration, and its first pass. One that refuses to start
        goes back to the last, or else offers nothing.
        """
        last = dict(self.account.choices), self.site.layout, self.site.report
        nothing = dict.fromkeys(CARDS, "none"), self.site.layout, True
        for configuration in ((choices, layout, report), last, nothing):
            self._configure(*configuration)
            if disturbance is not None:
                self._disturbed(disturbance, self.site.start)
                disturbance = None
            if self._starts():
                return
        raise AssertionError("an agent that offers nothing does not start")

    def _configure(self, choices: Mapping[str, str], layout: Any, report: bool) -> None:
        # That nobody may have a device twice only Placement can see to.
        self.account.choices = {
            card: "plain" if choice == "once" and not report else choice
            for card, choice in choices.items()
        }
        self.site.layout, self.site.report = layout, report

    def _starts(self) -> bool:
        before = self.placement.dump()
        reports = self.site.start()
        self._count()
        self._untouched(before)
        refused = {name for name, one in reports.items() if one.state in ("failed", "refused")}
        bad = {name: self._contradictions(name) for name in ROOTS}
        for name, one in reports.items():
            self.met["start: refused" if name in refused else "start: done"] += 1
            assert not bad[name] or name in refused
            assert name not in refused or bad[name] or self._in_the_way(before, name), [
                problem.message for problem in one.errors
            ]
        if refused:
            note(
                "refused: "
                f"{[problem.message for one in reports.values() for problem in one.errors]}"
            )
            self.site.stop()
        return not refused

    def _contradictions(self, name: str) -> bool:
        host = self.account.hosts[name]
        return (
            self.site.report
            and host.answers
            and any(contradictory(host.offered(self.account.choices, card)) for card in host.numa)
        )

    def _in_the_way(self, before: checks.Dump, name: str) -> bool:
        """Whether something that is used would be taken away or no longer be told."""
        found = [
            one for card in CARDS if (one := checks.card_provider(before, name, card)) is not None
        ]
        if not self.site.report:
            return bool(found)
        used = {uuid for one in before["consumers"].values() for uuid in one["allocations"]}
        return any(uuid in used for uuid, _ in found) or any(
            self.account.hosts[name].held(card) for card in CARDS
        )

    def audit(self) -> None:
        """Passes until nothing is written any more."""
        for _ in range(PASSES):
            reports = self.one_pass()
            if not any(one.outcomes for one in reports.values()):
                return self._settled(reports)
        raise AssertionError(
            f"not in sync after {PASSES} passes: {[one.outcomes for one in reports.values()]}"
        )

    def one_pass(self) -> Mapping[str, NodeReport]:
        """One pass, whatever comes of it."""
        before = self.placement.dump()
        reports = self.site.cycle()
        self._count()
        self._nothing_while_unanswered(before, self._untouched(before))
        for one in reports.values():
            assert one.state != "failed", one.errors
        return reports

    def disturbed_audit(self, disturbance: Disturbance) -> None:
        """Something goes wrong in the middle; after a crash a new process begins."""
        self._disturbed(disturbance, self.site.cycle)
        if "crash" in disturbance.kind:
            self.restart(self.account.choices, self.site.layout, self.site.report)
        self.audit()

    def _disturbed(self, disturbance: Disturbance, action: Callable[[], object]) -> None:
        before = self.placement.dump()
        with disturbed(self.placement, disturbance, self.met):
            action()
        # What was not counted now is by the pass that follows, on the same facts.
        self._count()
        self._untouched(before)

    def _count(self) -> None:
        for host in self.account.hosts.values():
            host.audit(self.account.choices)

    def _untouched(self, before: checks.Dump) -> checks.Dump:
        after = self.placement.dump()
        self.foreign.check(before, after)
        checks.check_consumers(self.account, before, after)
        checks.check_reserved(self.account, before, after)
        return after

    def _nothing_while_unanswered(self, before: checks.Dump, after: checks.Dump) -> None:
        """A host that cannot list its devices keeps them."""
        for node, host in self.account.hosts.items():
            for card in CARDS if not host.answers else ():
                then, now = (checks.card_provider(dump, node, card) for dump in (before, after))
                assert then is None or (
                    now is not None
                    and now[1]["inventories"].keys() == then[1]["inventories"].keys()
                )

    def _settled(self, reports: Mapping[str, NodeReport]) -> None:
        dump = self.placement.dump()
        errors = {name: bool(one.errors) for name, one in reports.items() if one.state != "failed"}
        if self.site.report:
            checks.check_tree(
                self.account, dump, self.foreign, self.site.layout == "nested", errors
            )
            told = {
                drift.consumer
                for one in reports.values()
                for drift in one.drift
                if drift.kind == "allocation-mismatch" and drift.consumer
            }
            checks.check_healed(
                self.account,
                dump,
                [name for name in errors if self.account.hosts[name].answers],
                told,
            )
        self.check_rows()

    def check_rows(self) -> None:
        """The tracker has what the account has, in memory and in its records; nobody has what
        another has.
        """
        for node, host in self.account.hosts.items():
            rows = self.site.rows(node)
            found = {
                name: (
                    one.serves,
                    one.numa_node,
                    one.holder,
                    one.state,
                    one.present,
                    "physical_network" in one.tags,
                )
                for name, one in rows.items()
            }
            wanted = {
                name: (
                    one.serves,
                    one.numa,
                    one.holder and uuid_of(one.holder),
                    one.state,
                    one.present,
                    one.network,
                )
                for name, one in host.rows.items()
            }
            assert found == wanted, node
            held = {name for name, one in rows.items() if one.holder is not None}
            assert not held & {card_of(name) for name in held if name[0] == "V"}
            assert self.site.records(node) == rows
            claims = self.site.tracker.view(ROOTS[node]).claims
            assert {(one.id, one.half, one.state) for one in claims.values()} == {
                (uuid_of(one.id), one.half, one.state)
                for one in self.account.claims.values()
                if one.node == node
            }

    # --- guests -----------------------------------------------------------------------------------

    def claim(self, node: str, wanted: Wanted, told: str, pick: int) -> str | None:
        """A new guest; ``told``: whether the scheduler asked Placement for everything (``all``),
        for its room alone, or nobody (``none``).
        """
        id = self._new_id("claim")
        name = f"guest-{id}"
        held = self._schedule(node, wanted, told, pick)
        if held:
            self.placement.other.claim(held, guest(name))
        asked = with_cards(wanted, self.site.cards(node, held))
        known = instance(name, flavor(wanted))
        request = InstanceClaim(id=uuid_of(id), node=ROOTS[node], instance=known, allocations=held)
        if self._do(
            "claim",
            id,
            node,
            lambda: self.account.claim(id, name, node, asked),
            lambda: self.site.tracker.claim(request),
        ):
            self.wanted[name] = wanted
            return name
        self._release(guest(name))
        return None

    def arrive(self, name: str) -> None:
        """The guest runs."""
        self._do(
            "arrive",
            None,
            None,
            lambda: self.account.arrive(name),
            lambda: self._update(name, vm_state="active"),
        )

    def attach(self, name: str, asked: tuple[Asked, ...]) -> None:
        """The guest gets more devices where it is."""
        node, id = self.account.guests[name], self._new_id("attach")
        request = DeviceClaim(
            id=uuid_of(id), node=ROOTS[node], instance=guest(name), devices=requests(asked, id)
        )
        self._do(
            "attach",
            id,
            node,
            lambda: self.account.attach(id, name, node, asked),
            lambda: self.site.tracker.claim_devices(request),
        )

    def in_use(self, id: str) -> None:
        """What was attached is used."""
        self._do(
            "in use",
            None,
            None,
            lambda: self.account.in_use(id),
            lambda: self.site.tracker.allocate_devices(uuid_of(id)),
        )

    def detach(self, name: str) -> None:
        """All of it comes back."""
        node = self.account.guests[name]
        self._do(
            "detach",
            None,
            None,
            lambda: self.account.detach(name, node),
            lambda: self.site.tracker.free_devices(ROOTS[node], guest(name), None),
        )

    def abort(self, id: str, late: bool) -> None:
        """A guest that does not come after all, or a move that is given up."""
        name = self.account.claims[id].guest
        if id in self.account.moves:
            status = "cancelled" if self.account.moves[id].type == "live-migration" else "error"
            self._do(
                "give up",
                None,
                None,
                lambda: self.account.back(id, status),
                lambda: self.site.tracker.abort(uuid_of(id)),
            )
            self._later(name, late, lambda: self._back(id, name))
        else:
            self._do(
                "abort",
                None,
                None,
                lambda: self.account.abort(id),
                lambda: self.site.tracker.abort(uuid_of(id)),
            )
            self._later(name, late, lambda: self._release(guest(name)))

    def delete(self, name: str, late: bool) -> None:
        """The guest is no more, whatever it was about."""
        moves = [id for id, one in self.account.moves.items() if one.guest == name]
        self._do(
            "delete",
            None,
            None,
            lambda: self.account.delete(name),
            lambda: self._update(name, deleted=True),
        )
        self._later(name, late, lambda: self._release(guest(name), *map(uuid_of, moves)))

    def _update(self, name: str, **said: Any) -> object:
        return self.site.tracker.update(guest(name), InstanceUpdate(**said))

    # --- moves ------------------------------------------------------------------------------------

    def move(
        self, name: str, type: Any, node: str, wanted: Wanted, told: str, pick: int
    ) -> str | None:
        """The guest goes to a node, or becomes something else where it is; the move, if there is
        room for it.
        """
        id, other = self._new_id("move"), self.placement.other
        wanted = wanted if type == "resize" else self.wanted[name]
        had = bool(other.allocations(guest(name))["allocations"])
        if had and other.move(guest(name), uuid_of(id), expect=(204, 409)) != 204:
            self.met["move: no room in Placement"] += 1
            return None
        held = self._schedule(node, wanted, told if had else "none", pick)
        if held:
            other.claim(held, guest(name))
        asked, new = (
            with_cards(wanted, self.site.cards(node, held)),
            flavor(wanted) if type == "resize" else None,
        )
        request = MoveClaim(
            id=uuid_of(id),
            type=type,
            node=ROOTS[node],
            instance=instance(name, flavor(self.wanted[name])),
            flavor=new,
            allocations=held,
        )
        if self._do(
            f"{type}",
            id,
            node,
            lambda: self.account.move(id, type, name, node, asked),
            lambda: self.site.tracker.claim_move(request),
        ):
            self.wanted[id] = wanted
            return id
        if had:
            self._release(guest(name))
            assert self._back(id, name)
        return None

    def finish(self, id: str, late: bool) -> None:
        """The guest is there."""
        name = self.account.moves[id].guest
        self._do(
            "finish",
            None,
            None,
            lambda: self.account.finish(id),
            lambda: self.site.tracker.finish(uuid_of(id)),
        )
        if not self.account.going_on(id):
            self._later(name, late, lambda: self._release(uuid_of(id)))

    def confirm(self, id: str, late: bool) -> None:
        """It stays there."""
        name = self.account.moves[id].guest
        self._do(
            "confirm",
            None,
            None,
            lambda: self.account.confirm(id),
            lambda: self.site.tracker.confirm(uuid_of(id)),
        )
        self.wanted[name] = self.wanted[id]
        self._later(name, late, lambda: self._release(uuid_of(id)))

    def revert(self, id: str, late: bool) -> None:
        """It goes back."""
        name = self.account.moves[id].guest
        self._update(name, task_state="resize_reverting")
        self._do(
            "revert",
            None,
            None,
            lambda: self.account.back(id, "reverted"),
            lambda: self.site.tracker.revert(uuid_of(id)),
        )
        self._update(name, task_state=None)
        self._later(name, late, lambda: self._back(id, name))

    # --- the orchestrator in Placement ------------------------------------------------------------

    def catch_up(self, name: str) -> bool:
        """What was still to be done for a guest; whether it could be."""
        done = self.late[name]()
        if done:
            del self.late[name]
        return done

    def _later(self, name: str, late: bool, action: Callable[[], bool]) -> None:
        self.late[name] = action
        if not late:
            self.catch_up(name)

    def _release(self, *consumers: str) -> bool:
        for one in consumers:
            if self.placement.other.allocations(one)["allocations"]:
                self.placement.other.release(one)
        return True

    def _back(self, move: str, name: str) -> bool:
        """What a migration holds is its guest's again."""
        if not self.placement.other.allocations(uuid_of(move))["allocations"]:
            return True
        return self.placement.other.move(uuid_of(move), guest(name), expect=(204, 409)) == 204

    def _schedule(self, node: str, wanted: Wanted, told: str, pick: int) -> Holdings:
        if told == "room":
            return {ROOTS[node]: ROOM}
        found = (
            self.site.candidates(
                node, [COUNTED_BY[alias] for alias, count in wanted for _ in range(count)]
            )
            if told == "all"
            else []
        )
        self.met[f"scheduled: {bool(found)}"] += told == "all" and bool(wanted)
        return found[pick % len(found)] if found else {}

    # --- how anything is done ---------------------------------------------------------------------

    def _do(
        self,
        what: str,
        id: str | None,
        node: str | None,
        account: Callable[[], object],
        real: Callable[[], object],
    ) -> bool:
        """Do something as the account says; whether it is not refused. ``id``: of a claim that this
        makes on ``node``.
        """
        free = self.account.hosts[node].free() if node else set()
        refused = False
        try:
            account()
        except Refused:
            refused = True
        error = error_of(real)
        note(f"{what} {id or ''}: {error or 'done'}")
        self.met[f"{what}: {'refused' if refused else 'done'}"] += 1
        assert isinstance(error, ResourcesUnavailable) if refused else error is None, (what, error)
        if not refused and id and node:
            got = {name for name, one in self.site.rows(node).items() if one.holder == uuid_of(id)}
            assert got <= free, got - free
            _check_got(got, self.account.claims[id].asked)
            self.account.got(id, got)
        self.check_rows()
        return not refused

    def _new_id(self, what: str) -> str:
        self.asked += 1
        return f"{what}-{self.asked}"


def _check_got(got: Iterable[str], asked: Iterable[Asked]) -> None:
    """As many of each kind as were asked for, and from the cards that the scheduler named."""
    left = sorted(got)
    for one in asked:
        for card in one.cards or (None,) * one.count:
            fitting = [
                name
                for name in left
                if name[0] == KINDS[one.alias] and card in (None, card_of(name))
            ]
            assert fitting, (got, asked)
            left.remove(fitting[0])
    assert left == []
