"""A guest of a walk, and what its orchestrator does for it: scripts that rest between any two
writes, and ask again what was not answered.

A script is a generator. It yields wherever something else may happen; whoever waits for a dead host
yields until that is back.
"""

import random
from collections.abc import Callable, Generator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from uuid import UUID

from agent.api.client import ApiClient, ApiProblem, MoveStep
from agent.model.instance import Flavor
from agent.model.node_records import MigrationType
from tests.functional.walk.cloud_account import CloudAccount, Share
from tests.support.orchestrator import Guest, Kind, Resources
from tests.support.placement import PROJECT, USER
from tests.support.walked_host import WalkedHost

if TYPE_CHECKING:
    from tests.functional.walk.cloud_walk import CloudWalk

# Moves that wait for no confirmation.
AT_ONCE = ("live-migration", "evacuation")
Script = Generator[str, None, None]
Change = Callable[[CloudAccount], object]


def _nothing(_account: CloudAccount) -> None:
    """What repeating changes."""


class WalkedGuest(Guest):
    """``script``: what goes on with it; ``waits``: for which host. ``gone``: it is no more, or
    never came.
    """

    def __init__(self, walk: "CloudWalk", kind: Kind, dice: random.Random) -> None:
        super().__init__(walk.placement, kind, dice)
        self.walk, self.gone = walk, False
        # By the dice, so that a walk can be repeated.
        self.uuid, self.claim = self._new_uuid(), self._new_uuid()
        self.script: Script | None = None
        self.waits: WalkedHost | None = None
        self.source: WalkedHost | None = None
        self.dest: WalkedHost | None = None
        self._request: dict[str, Any] = {}
        self._by_agents: bool | None = None

    @property
    def host(self) -> WalkedHost:
        """Where it is."""
        assert isinstance(self.owner, WalkedHost)
        return self.owner

    @property
    def migration(self) -> str:
        """The consumer of its last move, if it has moved."""
        return self._migration

    def holds_by_migration(self, host: str) -> bool:
        """Whether its migration holds something of a host that is for it, so that what it holds
        itself is for something else.
        """
        return (
            host in self.walk.holdings.shares.get(self._migration, {})
            and (self._migration, host) not in self.walk.holdings.over
        )

    def __str__(self) -> str:
        return f"{self.uuid[:8]} ({self.flavor.id})"

    # --- building and ending ----------------------------------------------------------------------

    def built(self, host: WalkedHost) -> Script:
        """It is built, or it turns out that it cannot be."""
        if not self._scheduled_on(host, self.flavor):
            self.gone = True
            return
        yield "scheduled"
        told = self._told(host)

        def share() -> Share:
            return Share(
                self.uuid,
                host.name,
                self.kind,
                self.flavor,
                host.machine,
                cells=self.walk.cells(host, told),
                cards=self.walk.cards(told, self.kind),
            )

        body = {
            "id": self.claim,
            "node": host.identity,
            "instance": {"uuid": self.uuid, "project_id": PROJECT, "user_id": USER},
            "flavor": asdict(self.flavor),
            "allocations": told,
        }
        if not (
            yield from self._claimed(
                host,
                share,
                lambda client: client.create_claim(body),
                lambda one: one.shares.update({self.claim: share()}),
            )
        ):
            self._releases(self.uuid)
            self.gone = True
            return
        self.owner = host
        yield "claimed"
        if self._dice.random() < 0.15:
            yield from self._until_answered(
                host,
                lambda client: client.abort_claim(self.claim),
                lambda one: one.release([self.claim]),
            )
            yield "not built"
            self._releases(self.uuid)
            self.gone = True
            return
        self._runs_on(host)
        yield "running"
        yield from self._becomes(
            host, lambda one: one.change([self.claim], state="consumed"), vm_state="active"
        )

    def deleted(self) -> Script:
        """It is deleted, whatever it was about."""
        hosts = [one for one in (self.dest, self.source, self.owner) if isinstance(one, WalkedHost)]
        ends = list(dict.fromkeys(hosts))
        for host in self.walk.hosts:
            host.domains.pop(self.uuid, None)
        yield "destroyed"
        # What its migration holds goes by the agents if that is on record where it holds it.
        known, told = (
            True,
            {one.host for one in self.walk.account.shares.values() if one.move == self._migration},
        )
        over = {
            host.name
            for host in self.walk.hosts
            if (self._migration, host.name) in self.walk.holdings.over
        }
        if self._by_agents is None:
            # Only before it was deleted for the first time does that tell what agents were told of
            # the move.
            self._by_agents = (
                self.walk.holdings.shares.get(self._migration, {}).keys() <= told | over
            )
        for consumer in (self.uuid, self._migration):
            self.walk.is_over(consumer, *self.walk.hosts)
        for host in ends:
            known &= yield from self._is_deleted(host)
        if not known or self._dice.random() < 0.5:
            yield "its allocation is left"
            self._releases(self.uuid)
        if not self._by_agents:
            self._releases(self._migration)
        self.gone = True

    def _is_deleted(self, host: WalkedHost) -> Generator[str, None, bool]:
        """Tell an agent. Returns whether it has anything of the guest."""

        def change(account: CloudAccount) -> None:
            account.release(account.of(self.uuid, None if self.walk.shared else host.name))

        try:
            yield from self._becomes(host, change, deleted=True)
        except ApiProblem as problem:
            if problem.code not in ("instance.unknown", "instance.elsewhere"):
                raise
            return False
        return True

    # --- moving -----------------------------------------------------------------------------------

    def moved_cold(self, dest: WalkedHost, flavor: Flavor | None, end: MoveStep) -> Script:
        """A resize or a cold migration."""
        source = self.host
        yield from self._becomes(source, task_state="resize_prep")
        if not (yield from self._leaves("resize" if flavor else "migration", dest, flavor)):
            yield from self._becomes(source, task_state=None)
            return
        yield from self._becomes(source, task_state="resize_migrated")
        source.domains.pop(self.uuid, None)
        if end == "abort":
            yield from self._takes("abort")
            self._runs_on(source)
            yield from self._stays(source, task_state=None)
            return
        self.flavor, before = flavor or self.flavor, self.flavor
        self._runs_on(dest)
        yield "started there"
        yield from self._takes("finish")
        yield from self._becomes(dest, vm_state="resized", task_state=None)
        for _ in range(self._dice.randint(0, 6)):
            yield "waits for its user"
        if end == "confirm":
            yield from self._becomes(dest, task_state="resize_confirming")
            yield from self._takes("confirm")
            yield from self._has_moved(dest)
            yield from self._becomes(dest, vm_state="active", task_state=None)
            return
        yield from self._becomes(dest, task_state="resize_reverting")
        dest.domains.pop(self.uuid, None)
        self.flavor = before
        yield from self._takes("revert")
        self._runs_on(source)
        yield from self._stays(source, vm_state="active", task_state=None)

    def moved_live(self, dest: WalkedHost, end: MoveStep) -> Script:
        """A live migration."""
        source = self.host
        yield from self._becomes(source, task_state="migrating")
        if not (yield from self._leaves("live-migration", dest, None)):
            yield from self._becomes(source, task_state=None)
            return
        yield "on its way"
        if end == "abort":
            yield from self._takes("abort")
            yield from self._stays(source, task_state=None)
            return
        self._runs_on(dest)
        source.domains.pop(self.uuid, None)
        yield "arrived"
        yield from self._takes("finish")
        yield from self._has_moved(dest)
        yield from self._becomes(dest, vm_state="active", task_state=None)

    def evacuated(self, dest: WalkedHost, end: MoveStep) -> Script:
        """Its host has died."""
        source = self.host
        if not (yield from self._leaves("evacuation", dest, None)):
            return
        yield from self._becomes(dest, task_state="rebuilding")
        if end == "abort":
            yield from self._takes("abort", dest)
            yield from self._loses(dest)
            yield from self._departs()
            yield from self._takes("abort", source)
            yield from self._becomes(source, task_state=None)
            self.dest = self.source = None
            return
        self._runs_on(dest)
        yield "rebuilt"
        yield from self._takes("finish", dest)
        self.walk.is_over(self.uuid, source)
        self.owner = dest
        yield from self._becomes(dest, vm_state="active", task_state=None)
        yield from self._until_serving(source)
        source.domains.pop(self.uuid, None)
        yield "the leftover is destroyed"
        yield from self._departs()
        yield from self._takes("finish", source)
        if self._dice.random() < 0.5:
            yield from self._until_answered(
                source, lambda client: client.remove_allocation(self.uuid, "node")
            )
        while self.walk.holds(self.uuid, source):
            yield "still holds the source"
        self.allocations[self.uuid] = self.held()
        self.dest = self.source = None

    # --- parts of moves ---------------------------------------------------------------------------

    def _leaves(
        self, type: MigrationType, dest: WalkedHost, flavor: Flavor | None
    ) -> Generator[str, None, bool]:
        """Room is made for it at ``dest``. Returns whether there is any; if not, all is
        as it was.
        """
        source, walk, new = self.host, self.walk, flavor or self.flavor
        self._kind_of_move, self._move, self._migration = type, self._new_uuid(), self._new_uuid()
        if type != "evacuation":
            if not self._hands_over(self.uuid, self._migration):
                yield "cannot be moved"
                return False
            yield "its migration holds the source"
        if not self._scheduled_on(dest, new):
            yield from self._goes_back()
            return False
        self.source, self.dest = source, dest
        yield "scheduled"
        told = self._told(dest)

        def share() -> Share:
            return Share(
                self.uuid,
                dest.name,
                self.kind,
                new,
                dest.machine,
                "new",
                move=self._migration,
                cells=walk.cells(dest, told),
                cards=walk.cards(told, self.kind),
            )

        self._request = {
            "id": self._move,
            "type": type,
            "node": dest.identity,
            "host": dest.name,
            "migration": self._migration,
            "allocations": told,
            "instance": {
                "uuid": self.uuid,
                "project_id": PROJECT,
                "user_id": USER,
                "host": source.name,
                "node": source.identity,
                "vm_state": "active",
                "flavor": asdict(self.flavor),
            },
            **({"flavor": asdict(flavor)} if flavor else {}),
        }

        def change(account: CloudAccount) -> None:
            if walk.tells(dest, source):
                self._leaves_behind(account)
            account.shares[self._move] = share()

        if not (
            yield from self._claimed(
                dest, share, lambda client: client.create_move(self._request), change
            )
        ):
            if type == "evacuation":
                yield from self._loses(dest)
            yield from self._goes_back()
            self.source = self.dest = None
            return False
        if type != "evacuation":
            yield from self._departs()
        return True

    def _departs(self) -> Script:
        """The source is told what the destination was."""
        assert self.source is not None
        if self.source is not self.dest:
            yield f"departs at {self.source.name}"
            # On one store that is a repetition.
            change: Change = _nothing if self.walk.shared else self._leaves_behind
            yield from self._until_answered(
                self.source, lambda client: client.create_move(self._request), change
            )

    def _leaves_behind(self, account: CloudAccount) -> None:
        """What it has at the source waits for the end of the move."""
        assert self.source is not None
        here = [id for id in account.of(self.uuid, self.source.name, "only") if id != self._move]
        account.change(here, half="old", move=self._migration)

    def _takes(self, step: MoveStep, *hosts: WalkedHost) -> Script:
        """Take the move a step further, at both ends."""
        source, dest, move, at_once = (
            self.source,
            self.dest,
            self._move,
            self._kind_of_move in AT_ONCE,
        )
        assert source is not None
        assert dest is not None
        walk = self.walk

        def at(host: WalkedHost) -> Change:
            def change(account: CloudAccount) -> None:
                old = account.of(self.uuid, source.name, "old") if walk.tells(host, source) else []
                new = [move] if walk.tells(host, dest) else []
                if walk.tells(host, source) and (
                    step == "confirm" or (step == "finish" and at_once)
                ):
                    account.over.add(
                        (
                            self.uuid if self._kind_of_move == "evacuation" else self._migration,
                            source.name,
                        )
                    )
                if step == "finish":
                    account.change(
                        new, state="consumed", **({"half": "only", "move": None} if at_once else {})
                    )
                    account.release(old if at_once else [])
                elif step == "confirm":
                    account.change(new, half="only", move=None)
                    account.release(old)
                else:
                    account.release(new)
                    account.change(old, half="only", move=None)

            return change

        for host in hosts or dict.fromkeys([dest, source]):
            yield f"{step} at {host.name}"
            repeated = walk.shared and host is not dest
            yield from self._until_answered(
                host,
                lambda client: client.take_move(move, step),
                _nothing if repeated else at(host),
            )

    def _has_moved(self, dest: WalkedHost) -> Script:
        """It stays there; what its migration holds is nobody's."""
        assert self.source is not None
        self.owner = dest
        self.walk.is_over(self._migration, self.source)
        yield "stays there"
        if self._dice.random() < 0.5:
            self._releases(self._migration)
        self.allocations.pop(self._migration, None)
        self.source = self.dest = None

    def _stays(self, source: WalkedHost, **states: Any) -> Script:
        """It is where it was, and gets back what its migration holds."""
        self.owner = source
        yield "stays where it was"
        yield from self._goes_back()
        yield from self._becomes(source, **states)
        self.source = self.dest = None

    def _hands_over(self, source: str, target: str) -> bool:
        """Let ``target`` hold all that ``source`` does. Returns whether Placement takes that, as it
        has to unless their host has become too small for the guest.
        """
        if self._placement.move(source, target, (204, 409)) != 204:
            assert self._is_too_large(
                {
                    provider: one["resources"]
                    for provider, one in self._placement.allocations(source)["allocations"].items()
                }
            )
            return False
        self.allocations[target] = self.allocations.pop(source)
        self.walk.wrote(source, target)
        return True

    def _is_too_large(self, held: Resources) -> bool:
        """Whether some of it is more than a provider gives one consumer by now."""
        return any(
            amount > self._placement.inventory(provider)[name]["max_unit"]
            for provider, amounts in held.items()
            for name, amount in amounts.items()
        )

    def _goes_back(self) -> Script:
        while self._migration in self.allocations and not self._hands_over(
            self._migration, self.uuid
        ):
            yield "its migration still holds the source"

    def _loses(self, host: WalkedHost) -> Script:
        """What it holds on a host goes."""
        self.allocations[self.uuid] = self.held()
        self.loses_share(host)  # type: ignore[arg-type]
        while not self._placement.can_claim(self.allocations[self.uuid], self.uuid):
            assert self._is_too_large(self.allocations[self.uuid])
            yield "still holds both hosts"
        self.walk.wrote(self.uuid)

    # --- parts ------------------------------------------------------------------------------------

    def _scheduled_on(self, host: WalkedHost, flavor: Flavor) -> bool:
        """Whether Placement has room for it there; then it holds that, beside what it has."""
        offers = self._offers(host, flavor)  # type: ignore[arg-type]
        wanted = {**self.held(), **(offers[0] if offers else {})}
        # What it has already may be of something that the other host has lost.
        if not offers or not self._placement.can_claim(wanted, self.uuid):
            return False
        self.allocations[self.uuid] = wanted
        self.walk.wrote(self.uuid)
        return True

    def _told(self, host: Any) -> dict[str, Any]:
        """The allocations on one host, as its agent is told of them."""
        mine = {one["uuid"] for one in self._placement.tree(host.identity)}
        return {
            provider: {"resources": dict(held)}
            for provider, held in self.held().items()
            if provider in mine
        }

    def _releases(self, consumer: str) -> None:
        if consumer and self._placement.allocations(consumer)["allocations"]:
            self._placement.release(consumer)
        self.allocations.pop(consumer, None)
        self.walk.wrote(consumer)

    def _new_uuid(self) -> str:
        return str(UUID(int=self._dice.getrandbits(128), version=4))

    def _until_serving(self, host: WalkedHost) -> Script:
        """Wait for a host's agent."""
        self.waits = host
        while not host.serves:
            yield f"waits for {host.name}"
        self.waits = None

    def _runs_on(self, host: WalkedHost) -> None:
        host.shows(self.uuid, self.flavor.memory_mb, self.flavor.vcpus)

    def _until_answered(
        self, host: WalkedHost, call: Callable[[ApiClient], object], change: Change = _nothing
    ) -> Generator[str, None, ApiProblem | None]:
        """Ask until there is an answer. Returns the refusal if there is no room."""
        while True:
            yield from self._until_serving(host)
            answered, refusal = self.walk.attempt(host, call, change)
            if answered:
                return refusal
            yield f"asks {host.name} again"

    def _claimed(
        self,
        host: WalkedHost,
        share: Callable[[], Share],
        call: Callable[[ApiClient], object],
        change: Change,
    ) -> Generator[str, None, bool]:
        """Ask for room. Returns whether there is any, as there has to be if the account knows of
        some.
        """
        refusal = yield from self._until_answered(host, call, change)
        if refusal is not None:
            # The account has not seen yet what others got in the same turn.
            self.walk.check()
        assert refusal is None or not self.walk.account.has_room(host.name, share(), host.lost), (
            f"refused although there is room: {refusal}, {refusal.problem}"
        )
        return refusal is None

    def _becomes(self, host: WalkedHost, change: Change = _nothing, **states: Any) -> Script:
        """Tell the agent of a host what has become of it."""

        def call(client: ApiClient) -> None:
            found = client.instance(self.uuid)
            if any(found[name] != state for name, state in states.items()):
                client.update_instance(self.uuid, found["version"], states)

        yield f"becomes {states}"
        yield from self._until_answered(host, call, change)
