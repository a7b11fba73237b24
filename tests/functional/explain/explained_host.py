"""A host with two cells and devices whose every explanation is checked: by queries of somebody else
to Placement, and by claims that are really made.
"""

import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from agent.audit.explaining import explain_node
from agent.audit.suggesting import limit_to_tree
from agent.explain.constraints import Constraint, without_constraints
from agent.explain.explanation import ExplainedRequest, NodeExplanation
from agent.explain.host_answer import HostCondition, relax, try_claim
from agent.explain.scheduler_query import SchedulerQuery, scheduler_query
from agent.model.facts import CpuFacts, HostFacts
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.numa.host_policy import HostPolicy
from agent.pci.device_request import aliases
from agent.pci.settings import PciSettings
from agent.placement.allocations.candidates import CandidateQuery, RequestGroup
from agent.tracker.errors import TrackerError
from agent.tracker.node_state import NodeState
from agent.tracker.stored_state import InstanceClaim, PlannedChange
from agent.tree.policy import Policy, Ratio
from tests.support.agent import NAME, ROOT, AgentUnderTest, ScriptedDriver
from tests.support.cell_site import PAGES_2M
from tests.support.placement import PlacementServer
from tests.support.scheduled_host import (
    ALIASES,
    CELLS,
    GPU,
    MEMORY_MIB,
    ONCE,
    RATIO,
    SHARED,
    SPECS,
    VF,
    cells,
    devices,
)
from tests.support.tracking import guest, uuid_of
from tests.unit.pci import scene

Condition = TypeVar("Condition")
Holdings = dict[str, dict[str, int]]
MISSING, PRESENT = "HW_CPU_X86_AVX2", "COMPUTE_NODE"
DISABLED = "COMPUTE_STATUS_DISABLED"


class ExplainedHost:
    """``strict``: its cells count shared CPUs and memory too."""

    def __init__(self, folder: Path, *, strict: bool) -> None:
        self.placement, self.strict = PlacementServer(), strict
        policy = Policy(
            HostPolicy(SHARED, frozenset().union(*CELLS) - SHARED),
            layout="nested",
            strict=strict,
            page_classes=True,
            reserved_memory_mib=0,
            cpu_ratio=Ratio(RATIO),
        )
        self.aliases, _ = aliases(
            [
                json.dumps({"name": name, "vendor_id": "8086", "product_id": product})
                for name, (product, _) in ALIASES.items()
            ],
            report=True,
        )
        driver = ScriptedDriver(nodes={ROOT: NAME})
        driver.facts_of = lambda name: HostFacts(
            name,
            time.time(),
            "scripted",
            cpu=CpuFacts(frozenset().union(*CELLS)),
            memory_mib=2 * MEMORY_MIB,
            disk_gib=1000,
            numa=cells(),
            pci=tuple(devices()),
        )
        self.agent = AgentUnderTest(
            self.placement,
            folder,
            driver,
            policy=policy,
            pci=PciSettings(scene.specs(*SPECS), self.aliases, report=True),
        )
        for _ in range(2):
            self.agent.period(start=True)
        self._empty = self.placement.snapshot()

    @property
    def state(self) -> NodeState:
        return self.agent.tracking.tracker.view(ProviderUuid(ROOT))

    def close(self) -> None:
        self.agent.stop()
        self.placement.close()

    # --- what is there ----------------------------------------------------------------------------

    @contextmanager
    def occupied(self, dice: random.Random) -> Iterator[None]:
        """Some guests are there, and Placement has some settings of an operator's."""
        claims = [
            made
            for _ in range(dice.choice((0, 2, 5, 9)))
            if (made := self._build(some_claim(dice, largest=4))) is not None
        ]
        for _ in range(dice.choice((0, 0, 1, 2))):
            self._set_something(dice)
        try:
            yield
        finally:
            for claim_id in claims:
                self.agent.tracking.tracker.abort(claim_id)
            self.agent.tracking.tracker.clean(ProviderUuid(ROOT), ONCE)
            self.placement.restore(self._empty)

    def _build(self, claim: InstanceClaim) -> str | None:
        """Give the guest what it asks for, if there is room. Returns the id of its claim."""
        request = self.request(claim)
        for held in self.candidates(request.query.query) if request is not None else ():
            if (made := self.claimed(claim, held)) is not None:
                self.placement.other.claim(held)
                return made
        return None

    def _set_something(self, dice: random.Random) -> None:
        other = self.placement.other
        provider = dice.choice(other.tree(ROOT))["uuid"]
        if dice.random() < 0.3:
            other.set_traits(ROOT, other.traits(ROOT) | {DISABLED})
        elif inventory := other.inventory(provider):
            record = inventory[dice.choice(sorted(inventory))]
            field = dice.choice(("reserved", "min_unit", "max_unit", "step_size"))
            record[field] = dice.choice((1, 2, 3)) if record["total"] > 2 else 1
            other.set_inventory(provider, inventory)

    # --- the judges -------------------------------------------------------------------------------

    def request(self, claim: InstanceClaim) -> ExplainedRequest | None:
        """The request for a guest; None if no host could grant it."""
        try:
            query = scheduler_query(claim, self.aliases, devices_in_placement=True)
        except TrackerError:
            return None
        return ExplainedRequest(query, claim)

    def candidates(self, query: CandidateQuery | None) -> list[Holdings]:
        """What Placement offers to somebody else."""
        if query is None:
            return []
        text = limit_to_tree(query, ProviderUuid(ROOT)).encoded()
        answer = self.placement.other.call(
            "GET", f"/allocation_candidates?{text}", expect=(200, 400)
        )
        if answer.status_code == 400:
            return []
        return [
            {uuid: dict(entry["resources"]) for uuid, entry in found["allocations"].items()}
            for found in answer.json()["allocation_requests"]
        ]

    def claimed(self, claim: InstanceClaim, held: Holdings) -> str | None:
        """The id of the claim that the tracker makes for a guest like this one; None if that is
        refused.
        """
        # New uuids, because a claim that was given back cannot be made again.
        instance = replace(claim.instance, uuid=ConsumerUuid(str(uuid4())))
        asked = replace(claim, id=str(uuid4()), instance=instance, allocations=held)
        try:
            self.agent.tracking.tracker.claim(asked)
        except TrackerError:
            return None
        return asked.id

    def explain(self, request: ExplainedRequest, *, suggests: bool = False) -> NodeExplanation:
        """The explanation under test."""
        client = self.agent.fleet.context.server.client()
        return explain_node(
            client,
            self.state,
            request,
            time.time(),
            devices_in_placement=True,
            with_suggestions=suggests,
        )

    def check(self, request: ExplainedRequest, explained: NodeExplanation) -> None:
        """Everything that the explanation says is so."""
        offered = self.candidates(request.query.query)
        assert explained.placement is not None
        assert bool(offered) == bool(explained.placement.candidates)
        assert explained.placement.asked <= 40
        if not offered:
            self._check_constraints(request.query, explained)
        if request.claim is not None:
            self._check_host(request.claim, explained, offered)
        elif offered:
            assert explained.fits

    def _check_constraints(self, query: SchedulerQuery, explained: NodeExplanation) -> None:
        assert not explained.fits
        assert explained.placement is not None

        @cache
        def fits_without(left_out: frozenset[Constraint]) -> bool:
            return bool(self.candidates(without_constraints(query.query, left_out)))

        for reasons in explained.placement.excluded_by.sets:
            left_out = frozenset(reason.constraint for reason in reasons)
            assert fits_without(left_out), left_out
            for fewer in proper_parts(left_out):
                assert not fits_without(fewer), (left_out, fewer)

    def _check_host(
        self, claim: InstanceClaim, explained: NodeExplanation, offered: Sequence[Holdings]
    ) -> None:
        host = explained.host
        assert host is not None
        if explained.fits:
            assert host.candidate is not None
            held, made = next(
                (held, made) for held in offered if (made := self.claimed(claim, held)) is not None
            )
            self.agent.tracking.tracker.abort(made)
            assert self.placement.other.can_claim(held, claim.instance.uuid)
            return
        assert not any(self.claimed(claim, held) for held in offered[:20])

        @cache
        def granted_without(left_out: frozenset[HostCondition]) -> bool:
            state, relaxed = relax(self.state, claim, left_out)
            return isinstance(try_claim(state, relaxed, {}, time.time()), PlannedChange)

        for left_out in host.excluded_by.sets:
            assert granted_without(left_out), left_out
            for fewer in proper_parts(left_out):
                assert not granted_without(fewer), (left_out, fewer)
        if host.granted is not None or host.alone:
            assert granted_without(frozenset())


def proper_parts(whole: frozenset[Condition]) -> Iterator[frozenset[Condition]]:
    """All parts of a set but the whole, the empty one included."""
    for size in range(len(whole)):
        yield from map(frozenset, combinations(whole, size))


# --- requests of any kind -------------------------------------------------------------------------


def some_claim(dice: random.Random, *, largest: int = 30) -> InstanceClaim:
    """A claim for a guest of any flavor."""
    vcpus = dice.choice([size for size in (1, 2, 3, 4, 6, 8, 13, 30) if size <= largest])
    memory = dice.choice((256, 512, 1024, 2048, 4096, *((9000, 30000) if largest > 4 else ())))
    flavor = Flavor(
        "any",
        "ANY",
        vcpus,
        memory,
        root_gb=dice.choice((0, 1, 10, *((2000,) if largest > 20 else ()))),
        extra_specs=some_specs(dice, vcpus, memory),
    )
    return InstanceClaim(
        id=uuid_of("claim-asked"),
        node=ProviderUuid(ROOT),
        instance=Instance(uuid=guest("asked"), project_id="project", user_id="user", flavor=flavor),
    )


def some_specs(dice: random.Random, vcpus: int, memory: int) -> dict[str, str]:
    """Extra specs of any kind. Some contradict each other."""
    specs: dict[str, str] = {}
    kind = dice.choice(("floating", "dedicated", "dedicated", "mixed", "classes", "groups"))
    if kind == "dedicated":
        specs["hw:cpu_policy"] = "dedicated"
        if dice.random() < 0.3:
            specs["hw:cpu_thread_policy"] = dice.choice(("require", "isolate", "prefer"))
        if dice.random() < 0.2:
            specs["hw:emulator_threads_policy"] = "isolate"
    elif kind == "mixed" and vcpus > 1:
        specs |= {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"}
    elif kind == "classes":
        specs["resources:PCPU"] = str(vcpus)
    elif kind == "groups":
        specs |= {"resources1:PCPU": str(vcpus), "trait1:HW_NUMA_ROOT": "required"}
    if kind != "floating" and dice.random() < 0.3:
        specs["hw:numa_nodes"] = dice.choice(("1", "2", "3"))
    if dice.random() < 0.25:
        specs["hw:mem_page_size"] = dice.choice(("2048", "large", "1048576", "small"))
        if dice.random() < 0.5:
            specs[f"resources:{PAGES_2M}"] = str(memory)
    if dice.random() < 0.3:
        name, count = dice.choice(("gpu", "vf")), dice.choice((1, 1, 2, 5))
        specs["pci_passthrough:alias"] = f"{name}:{count}"
        if dice.random() < 0.5:
            policies = ("required", "preferred", "legacy", "socket")
            specs["hw:pci_numa_affinity_policy"] = dice.choice(policies)
    if dice.random() < 0.2:
        specs[f"trait:{dice.choice((MISSING, PRESENT))}"] = dice.choice(("required", "forbidden"))
    if dice.random() < 0.1:
        specs["group_policy"] = "isolate"
    return specs


def some_query(dice: random.Random) -> CandidateQuery:
    """A query of any kind, in Placement's own words."""
    names = {
        "": {"VCPU": (1, 4, 200), "MEMORY_MB": (512, 4096, 90000), "DISK_GB": (1, 9999)},
        "_A": {"PCPU": (1, 4, 12, 40), PAGES_2M: (512, 2048, 9000)},
        "_B": {GPU: (1, 2), VF: (1, 3, 9)},
    }
    groups = []
    for suffix, classes in names.items():
        if suffix and dice.random() < 0.4:
            continue
        chosen = dice.sample(sorted(classes), dice.choice((1, 1, 2)))
        amounts = {name: dice.choice(classes[name]) for name in chosen}
        traits = {trait: dice.random() for trait in (MISSING, PRESENT, "HW_NUMA_ROOT")}
        groups.append(
            RequestGroup(
                suffix,
                amounts,
                frozenset(trait for trait, chance in traits.items() if chance < 0.12),
                frozenset(trait for trait, chance in traits.items() if chance > 0.9),
            )
        )
    suffixes = frozenset(group.suffix for group in groups if group.suffix)
    several = len(suffixes) > 1
    return CandidateQuery(
        tuple(groups),
        policy=dice.choice(("none", "isolate")) if several else None,
        same_subtree=(suffixes,) if several and dice.random() < 0.5 else (),
        root_required=frozenset({MISSING} if dice.random() < 0.1 else ()),
        root_forbidden=frozenset({DISABLED} if dice.random() < 0.7 else ()),
        limit=50,
    )
