"""``fake.chaos``: the host of ``fake.numa`` with a driver that is slow, fails or reports incomplete
facts, by a seed.
"""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, Literal

from oslo_config import cfg

from agent.driver.interface import HostContext
from agent.errors import NotReady
from agent.model.facts import HostFacts, Section
from agent.model.topology import Topology
from drivers.fake.catalogue import NumaDriver

Disturbance = Literal["delay", "not-ready", "partial"]
MAX_DELAY = 0.02
"""Seconds."""
SECTIONS: tuple[Section, ...] = ("cpu", "memory", "disk", "numa", "pci")


class ChaosDriver:
    """Disturbs ``[fake] chaos_probability`` of the calls.

    What happens to the n-th call of a method depends on the seed, the method and n alone, so that
    the order of threads does not matter.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._inner = NumaDriver(conf)
        self._seed: int = conf.fake.chaos_seed
        self._probability: float = conf.fake.chaos_probability
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self.disturbed: Counter[Disturbance] = Counter()
        """How many calls were disturbed, by kind."""

    def start(self, host: HostContext) -> None:
        """Start undisturbed, because an agent that never starts shows nothing."""
        self._inner.start(host)

    def stop(self) -> None:
        """Stop undisturbed."""
        self._inner.stop()

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        """Return the host's only node.

        :raises NotReady: by chance.
        """
        self._maybe_disturb("nodes", ("delay", "not-ready"))
        return self._inner.nodes(refresh)

    def facts(self, name: str) -> HostFacts:
        """Return the facts of ``fake.numa``, by chance with wrong sections that are marked as
        incomplete.

        :raises NotReady: by chance.
        """
        dice = self._maybe_disturb("facts", ("delay", "not-ready", "partial"))
        facts = self._inner.facts(name)
        return facts if dice is None else _partial(facts, dice)

    def is_node_deleted(self, name: str) -> bool:
        """Whether it is another node than the host's.

        :raises NotReady: by chance.
        """
        self._maybe_disturb("is_node_deleted", ("delay", "not-ready"))
        return self._inner.is_node_deleted(name)

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        """Return the capabilities of every fake driver, undisturbed, because a driver knows them
        without asking its backend.
        """
        return self._inner.capabilities_as_traits()

    def _maybe_disturb(self, method: str, kinds: tuple[Disturbance, ...]) -> Random | None:
        """Delay or fail this call, by chance. Return the random generator if its answer is to be
        partial.
        """
        with self._lock:
            self._calls[method] += 1
            number = self._calls[method]
            dice = Random(f"{self._seed} {method} {number}")
            if dice.random() >= self._probability:
                return None
            kind = dice.choice(kinds)
            self.disturbed[kind] += 1
        if kind == "not-ready":
            raise NotReady(
                f"fake.chaos: call {number} of {method} fails on purpose",
                "try again, or set [fake] chaos_probability = 0",
            )
        if kind == "delay":
            time.sleep(dice.uniform(0, MAX_DELAY))
            return None
        return dice


def _partial(facts: HostFacts, dice: Random) -> HostFacts:
    """Return ``facts`` with some sections marked as incomplete, each either missing or lacking a
    part, because no caller may rely on them.
    """
    chosen = dice.sample(SECTIONS, dice.randint(1, len(SECTIONS)))
    damaged: dict[str, Any] = {}
    for section in chosen:
        missing = dice.random() < 0.5
        damaged.update(_damage(facts, section, missing))
    return replace(
        facts, incomplete=dict.fromkeys(chosen, "fake.chaos: left out on purpose"), **damaged
    )


def _damage(facts: HostFacts, section: Section, missing: bool) -> dict[str, Any]:
    if section == "cpu":
        short = facts.cpu and replace(facts.cpu, online=frozenset(sorted(facts.cpu.online)[::2]))
        return {"cpu": None if missing else short}
    if section == "memory":
        return {"memory_mib": None if missing else (facts.memory_mib or 0) // 2}
    if section == "disk":
        return {"disk_gib": None if missing else (facts.disk_gib or 0) // 2}
    if section == "numa":
        return {"numa": None if missing else facts.numa and Topology(facts.numa.cells[1:])}
    return {"pci": None if missing else (facts.pci or ())[1:]}
