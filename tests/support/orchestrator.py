"""Plays scheduler and conductor of a cloud: writes allocations in Placement, and calls the agents
again until they answer.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar
from urllib.parse import urlencode
from uuid import uuid4

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable, MoveStep
from agent.model.instance import Flavor
from agent.model.node_records import MigrationType
from tests.support.compute_host import GPU, PATIENCE, UNITS, VF, ComputeHost
from tests.support.placement import PROJECT, USER, OtherClient, Placement, observer_session
from tests.support.tracking import F1, F2, F3, FM, FN, FN4

Resources = Mapping[str, Mapping[str, int]]
"""Provider to class to amount."""

Found = TypeVar("Found")

BUSY = 503
PAUSE = 0.05


@dataclass(frozen=True)
class Kind:
    """A sort of guest: as it is built, as it is resized, and how many units it has either way, or
    the class of the device that it has.
    """

    small: Flavor
    large: Flavor
    units: int = 0
    device: str | None = None

    def resources(self, flavor: Flavor) -> dict[str, int]:
        """What a scheduler asks of Placement for it."""
        cpus = "PCPU" if flavor.extra_specs.get("hw:cpu_policy") == "dedicated" else "VCPU"
        disk_gb = -(-flavor.amounts(volume_backed=False).disk_mb // 1024)
        more = {
            **({UNITS: self.units} if self.units else {}),
            **({self.device: 1} if self.device else {}),
        }
        return {cpus: flavor.vcpus, "MEMORY_MB": flavor.memory_mb, "DISK_GB": disk_gb, **more}


def _with(alias: str, flavor: Flavor) -> Flavor:
    return replace(
        flavor, id=f"{flavor.id}-{alias}", extra_specs={"pci_passthrough:alias": f"{alias}:1"}
    )


PLAIN = Kind(F1, F3)
PINNED = Kind(FN, FN4)
WITH_UNIT = Kind(FM, Flavor("fm2", "FM2", 2, 4096, root_gb=20), units=1)
WITH_FUNCTION = Kind(_with("vf", FM), _with("vf", F2), device=VF)
WITH_GPU = Kind(_with("gpu", FM), _with("gpu", F2), device=GPU)
KINDS = (PLAIN, PINNED, WITH_UNIT, WITH_FUNCTION)


def ask(host: ComputeHost, call: Callable[[ApiClient], Found]) -> Found:
    """What the call answers; made again as long as no answer comes, or none but that it is too
    early.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return call(host.client)
        except (ApiUnreachable, ApiProblem) as error:
            if isinstance(error, ApiProblem) and error.status != BUSY:
                raise
            assert time.monotonic() < end, f"{host.name}: {error}\n{host.log[-4000:]}"
        time.sleep(PAUSE)


class Guest:
    """One guest, and what the orchestrator does for it and remembers of it.

    ``dice`` decides which calls it makes twice. ``allocations``: what each of its consumers is to
    hold in the end.
    """

    def __init__(self, placement: Placement, kind: Kind, dice: random.Random) -> None:
        # One of its own, because guests live in threads.
        self._placement = OtherClient(observer_session(placement.session()), placement.url)
        self.kind, self._dice = kind, dice
        self.uuid, self.claim = str(uuid4()), str(uuid4())
        self.flavor = kind.small
        self.owner: ComputeHost | None = None
        self.allocations: dict[str, Resources] = {}
        self._move = self._migration = ""
        self._asked: dict[str, Any] = {}
        self._kind_of_move: MigrationType = "resize"
        self.ended: dict[str, tuple[str, str]] = {}

    # --- building and ending ----------------------------------------------------------------------

    def build(self, host: ComputeHost) -> None:
        """Have it built."""
        self._hold(self._scheduled(host, self.flavor))
        self._build(host)

    def tries(self, host: ComputeHost) -> bool:
        """Have it built if there is room. Returns whether there was: others may be faster."""
        offers = self._offers(host, self.flavor)
        if not offers or not self._placement.can_claim(offers[0], self.uuid):
            return False
        self.allocations[self.uuid] = offers[0]
        self._build(host)
        return True

    def _build(self, host: ComputeHost) -> None:
        body = {
            "id": self.claim,
            "node": host.identity,
            "instance": {"uuid": self.uuid, "project_id": PROJECT, "user_id": USER},
            "flavor": asdict(self.flavor),
            "allocations": self._told(host),
        }
        self._ask(host, lambda client: client.create_claim(body))
        self.owner = host
        self.becomes(host, vm_state="active")

    def devices(self) -> list[str]:
        """The addresses of the devices that its claim holds, as its host's agent says."""
        owner = self.owner
        assert owner is not None
        return [
            one["address"] for one in ask(owner, lambda client: client.claim(self.claim))["devices"]
        ]

    def becomes(self, host: ComputeHost, **states: Any) -> None:
        """Tell the agent of a host what has become of it. Who gets no answer looks what is there
        before he asks again.
        """
        while True:
            found = ask(host, lambda client: client.instance(self.uuid))
            if all(found[name] == state for name, state in states.items()):
                return
            try:
                ask(
                    host,
                    lambda client: client.update_instance(self.uuid, found["version"], states),  # noqa: B023
                )
                return
            except ApiProblem as problem:
                if problem.code != "record.changed":
                    raise

    def end(self) -> None:
        """It is deleted; what it holds in Placement is left to the agent."""
        assert self.owner is not None
        self.becomes(self.owner, deleted=True)
        self.allocations.clear()

    # --- moving -----------------------------------------------------------------------------------

    def leave(self, kind: MigrationType, dest: ComputeHost, flavor: Flavor | None = None) -> None:
        """Have room made for it at ``dest``, and tell its host, unless that is dead.

        Until the end of the move its migration holds the source; in an evacuation it does itself.
        """
        source = self.owner
        assert source is not None
        self._kind_of_move, self._move, self._migration = kind, str(uuid4()), str(uuid4())
        arriving = self._scheduled(dest, flavor or self.flavor)
        if kind == "evacuation":
            self._hold({**self.allocations[self.uuid], **arriving})
        else:
            self._placement.move(self.uuid, self._migration)
            self.allocations[self._migration] = self.allocations.pop(self.uuid)
            self._hold(arriving)
        described = {
            "uuid": self.uuid,
            "project_id": PROJECT,
            "user_id": USER,
            "host": source.name,
            "node": source.identity,
            "flavor": asdict(self.flavor),
        }
        self._asked = {
            "id": self._move,
            "type": kind,
            "node": dest.identity,
            "host": dest.name,
            "instance": described,
            "migration": self._migration,
            "allocations": self._told(dest),
            **({"flavor": asdict(flavor)} if flavor else {}),
        }
        self.told(dest, *([source] if kind != "evacuation" else []))

    def told(self, *hosts: ComputeHost) -> None:
        """The agents of these hosts are told of the move."""
        for host in hosts:
            self._ask(host, lambda client: client.create_move(self._asked))

    def step(self, step: MoveStep, *hosts: ComputeHost) -> str:
        """Take the move a step further, by the agents of these hosts; what the migration's status
        is then, wherever it is kept.
        """
        (status,) = {
            self._ask(host, lambda client: client.take_move(self._move, step))["migration"][
                "status"
            ]
            for host in hosts
        }
        return str(status)

    def arrived(self, host: ComputeHost, status: str, flavor: Flavor | None = None) -> None:
        """It stays there; that the migration's allocation goes is the agents' business."""
        self.owner, self.flavor = host, flavor or self.flavor
        self.ended[self._migration] = (self._kind_of_move, status)
        self.allocations.pop(self._migration, None)

    def stayed(self, status: str) -> None:
        """It is where it was, and gets back what its migration holds there."""
        self.ended[self._migration] = (self._kind_of_move, status)
        if self._migration in self.allocations:
            self._placement.move(self._migration, self.uuid)
            self.allocations[self.uuid] = self.allocations.pop(self._migration)

    def remove_share(self, host: ComputeHost) -> None:
        """Have the agent of a host take what the guest holds there."""
        ask(host, lambda client: client.remove_allocation(self.uuid, "node"))
        self.loses_share(host)

    def loses_share(self, host: ComputeHost) -> None:
        """What it holds on a host is to go."""
        mine = {one["uuid"] for one in self._placement.tree(host.identity)}
        self.allocations[self.uuid] = {
            provider: held
            for provider, held in self.allocations[self.uuid].items()
            if provider not in mine
        }

    def held(self) -> Resources:
        """What it holds in Placement now."""
        return {
            provider: one["resources"]
            for provider, one in self._placement.allocations(self.uuid)["allocations"].items()
        }

    # --- parts ------------------------------------------------------------------------------------

    def _ask(self, host: ComputeHost, call: Callable[[ApiClient], Found]) -> Found:
        """What the call answers; made twice now and then, as by somebody who did not hear the first
        answer.
        """
        answer = ask(host, call)
        return ask(host, call) if self._dice.random() < 0.2 else answer

    def _scheduled(self, host: ComputeHost, flavor: Flavor) -> Resources:
        """What Placement offers for the flavor on the host, which has room for it."""
        (found,) = self._offers(host, flavor)
        return found

    def _offers(self, host: ComputeHost, flavor: Flavor) -> list[Resources]:
        """What Placement offers, if anything: the first choice."""
        wanted = ",".join(
            f"{name}:{amount}" for name, amount in self.kind.resources(flavor).items()
        )
        query = urlencode({"resources": wanted, "in_tree": host.identity, "limit": 1})
        found = self._placement.call("GET", f"/allocation_candidates?{query}").json()[
            "allocation_requests"
        ]
        return [
            {provider: one["resources"] for provider, one in offer["allocations"].items()}
            for offer in found
        ]

    def _hold(self, allocations: Resources) -> None:
        """Have the guest hold exactly that."""
        self._placement.claim(allocations, self.uuid)
        self.allocations[self.uuid] = allocations

    def _told(self, host: ComputeHost) -> dict[str, Any]:
        """The allocations as an agent is told of them."""
        return {
            provider: {"resources": dict(held)}
            for provider, held in self.allocations[self.uuid].items()
        }
