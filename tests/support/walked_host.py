"""A hypervisor of a walk: what it shows now, and its agent in the test's process behind the real
API, which may end at any write.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from falcon.testing import create_environ

from agent.api.access import Access, Peer
from agent.api.application import PEER, application
from agent.api.client import ApiAnswer, ApiClient, ApiProblem, ApiUnreachable
from agent.api.description import load
from agent.api.metrics import Metrics
from agent.api.record_views import RecordViews
from agent.model.facts import CpuFacts, Domain, HostFacts
from agent.model.host_units import AssignableUnit
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.report import NodeReport
from agent.model.topology import Cell, Topology
from agent.numa.host_policy import HostPolicy
from agent.pci.alias import aliases
from agent.pci.settings import PciSettings
from agent.service.daemon_service import DaemonService
from agent.tree.policy import Layout, Policy
from tests.support import local_api
from tests.support.agent import AgentUnderTest, ScriptedDriver
from tests.support.compute_host import GPU, KINDS, UNITS, VF
from tests.support.faulty_store import Fault, FaultyStore
from tests.support.placement import PlacementServer
from tests.support.tracking import Time, uuid_of
from tests.unit.pci import scene

CELLS = (frozenset(range(16)), frozenset(range(16, 32)))
DEDICATED = (frozenset(range(4, 16)), frozenset(range(20, 32)))
SHARED = frozenset().union(*CELLS) - frozenset().union(*DEDICATED)
CARD, FUNCTIONS, GPUS = "F3", ("V30", "V31", "V32", "V33"), ("P0", "P1")
NAMESPACES = ("ns_0", "ns_1", "ns_2")
CLASS_OF = {
    **dict.fromkeys(FUNCTIONS, VF),
    **dict.fromkeys(GPUS, GPU),
    **dict.fromkeys(NAMESPACES, UNITS),
}
"""What counts each device and unit."""
RESERVED_MEMORY_MIB, RESERVED_DISK_MIB = 512, 2048
CAPACITY = {
    "VCPU": 4 * len(SHARED),
    "PCPU": sum(map(len, DEDICATED)),
    "MEMORY_MB": 2 * 65536 - RESERVED_MEMORY_MIB,
    "DISK_GB": 2000 - RESERVED_DISK_MIB // 1024,
    VF: len(FUNCTIONS),
    GPU: len(GPUS),
    UNITS: len(NAMESPACES),
}
"""What guests can have of the whole host."""

DEVICES = {
    **dict.fromkeys(FUNCTIONS, (scene.NAMES[CARD].upper(), VF)),
    **{one: (scene.NAMES[one].upper(), GPU) for one in GPUS},
    **dict.fromkeys(NAMESPACES, ("", UNITS)),
}
"""Which provider offers each device and unit, by what is behind the node's name in its own, and in which class."""

_TOPOLOGY = Topology(tuple(Cell(number, cpus, 65536) for number, cpus in enumerate(CELLS)))
_ALIASES, _ = aliases(
    [json.dumps({"name": name, **one}) for name, one in KINDS.items()], report=True
)
_PCI = PciSettings(scene.specs(*KINDS.values()), _ALIASES, report=True)
_DESCRIPTION, _DESCRIBED = load(), local_api.Described()


class WalkedHost:
    """``lost``: the devices and units that it does not show. ``answers``: whether it can tell of
    its devices. ``domains``: of its guests.

    ``url``: the database that hosts share, None for a store of its own. ``fault``: what happens to
    the next write of records.
    """

    def __init__(
        self,
        name: str,
        placement: PlacementServer,
        folder: Path,
        url: str | None,
        time: Time,
        node: str | None = None,
    ) -> None:
        self.name, self.node, self.placement, self.folder, self.url, self.time = (
            f"host-{name}",
            f"node-{node or name}",
            placement,
            folder,
            url,
            time,
        )
        self.identity = ProviderUuid(uuid_of(self.node))
        self.layout: Layout = "flat"
        self.lost: set[str] = set()
        self.answers, self.dead = True, False
        self.domains: dict[str, Domain] = {}
        self.fault: Fault | None = None
        self._agent: AgentUnderTest | None = None
        self._application: Any = None
        self._store: FaultyStore | None = None
        self.client = _ClientHere(self)

    # --- what it shows ----------------------------------------------------------------------------

    def facts(self, name: str) -> HostFacts:
        """All of it, or all but the devices."""
        known = (
            {"pci": tuple(self._devices())}
            if self.answers
            else {"incomplete": {"pci": "no answer"}}
        )
        return HostFacts(
            name,
            self.time(),
            "QEMU",
            cpu=CpuFacts(frozenset().union(*CELLS)),
            memory_mib=2 * 65536,
            disk_gib=2000,
            numa=_TOPOLOGY,
            units=tuple(AssignableUnit(UNITS, one) for one in NAMESPACES if one not in self.lost),
            domains=tuple(self.domains.values()),
            **cast(Any, known),
        )

    def _devices(self) -> Any:
        functions = [one for one in FUNCTIONS if one not in self.lost]
        yield scene.physical(CARD, *functions, numa_node=1)
        yield from (scene.virtual(one, CARD, numa_node=1) for one in functions)
        yield from (
            scene.plain(one, numa_node=number)
            for number, one in enumerate(GPUS)
            if one not in self.lost
        )

    def shows(self, guest: str, memory_mib: int, vcpus: int) -> None:
        """A guest is here."""
        self.domains[guest] = Domain(
            ConsumerUuid(guest), f"instance-{guest[:8]}", memory_mib, vcpus
        )

    def offers(self, layout: Layout) -> dict[tuple[str, str], float]:
        """What guests can have of each provider, by what is behind the node's name in its own, and
        class: what there is, in a layout.
        """
        dedicated = {
            "flat": {"": sum(map(len, DEDICATED))},
            "nested": {f"NUMA{number}": len(cpus) for number, cpus in enumerate(DEDICATED)},
        }[layout]
        found = Counter({("", name): CAPACITY[name] for name in ("VCPU", "MEMORY_MB", "DISK_GB")})
        found.update({(name, "PCPU"): amount for name, amount in dedicated.items()})
        found.update(where for one, where in DEVICES.items() if one not in self.lost)
        return {key: float(amount) for key, amount in found.items()}

    # --- its agent --------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """Whether an agent runs."""
        return self._agent is not None

    @property
    def serves(self) -> bool:
        """Whether it has made its first pass, and answers."""
        return self._application is not None

    @property
    def agent(self) -> AgentUnderTest:
        """The one that runs."""
        assert self._agent is not None
        return self._agent

    def start(self) -> NodeReport:
        """A new process, and its first pass."""
        assert self._agent is None
        driver = ScriptedDriver(nodes={self.identity: self.node})
        driver.facts_of = self.facts
        policy = Policy(
            HostPolicy(SHARED, frozenset().union(*DEDICATED)),
            layout=self.layout,
            reserved_memory_mib=RESERVED_MEMORY_MIB,
            reserved_disk_mib=RESERVED_DISK_MIB,
        )
        self._agent = AgentUnderTest(
            self.placement,
            self.folder,
            driver,
            policy=policy,
            pci=_PCI,
            host=self.name,
            identity=self.name,
            clock=self.time,
            connection=self.url,
            through=self._through,
        )
        return self.audit()

    def audit(self) -> NodeReport:
        """One more pass, as a daemon makes them."""
        found = self.agent.period(start=True)
        # Without an answer of Placement there is nothing to tell of any node.
        (report,) = found.nodes or (
            NodeReport(self.node, self.identity, "scripted", "failed", errors=found.errors),
        )
        if self._application is None:
            service = DaemonService(lambda: None)
            service.set_records(RecordViews(self.agent.records, self.name))
            service.set_context(self.agent.fleet.context, audited=True)
            self._application = application(
                service, lambda: Access(0), Metrics(), 1, 1, _DESCRIPTION
            )
        return report

    def kill(self) -> None:
        """It ends at once: nothing is given back or told."""
        if self._agent is not None:
            self._agent.stop()
        self._agent, self._application, self._store, self.fault = None, None, None, None

    def strikes(self, fault: Fault | None) -> None:
        """What happens to the next write of records."""
        self.fault = fault
        if self._store is not None:
            self._store.fault = fault

    def _through(self, store: Any) -> FaultyStore:
        self._store = FaultyStore(store)
        self._store.fault = self.fault
        return self._store

    def stop(self) -> None:
        """It ends in order, and lets go of its node."""
        if self._agent is not None:
            self._agent.tracking.node_leases.release()
        self.kill()

    def answer(
        self, method: str, target: str, body: Any, headers: Mapping[str, str]
    ) -> local_api.Answer:
        """What the agent's API answers, which has to be as it is described."""
        if self._application is None:
            raise ApiUnreachable(f"{self.name} is down", "wait")
        parts, status, found = urlsplit(target), [""], {}
        content = "" if body is None else json.dumps(body)
        kind = {"Content-Type": "application/json"} if content else {}
        environment = create_environ(
            path=parts.path,
            query_string=parts.query,
            method=method,
            body=content,
            headers={**kind, **headers},
        )
        environment[PEER] = Peer(1, 0, frozenset())

        def begin(line: str, fields: Any, _error: Any = None) -> None:
            status[0] = line
            found.update({name.lower(): value for name, value in fields})

        content_found = b"".join(self._application(environment, begin))
        answer = local_api.Answer(int(status[0].split()[0]), found, content_found)
        _DESCRIBED.check(method, target, answer)
        return answer


class _ClientHere(ApiClient):
    """The client, without a socket, so that the end of a process takes its caller's call along."""

    def __init__(self, host: WalkedHost) -> None:
        super().__init__(host.folder)
        self._host = host

    def request(
        self,
        method: str,
        target: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        wait: float = 0,
    ) -> ApiAnswer:
        answer = self._host.answer(method, target, body, headers or {})
        if answer.status >= 400:
            raise ApiProblem(answer.json)
        return ApiAnswer(answer.status, answer.headers, answer.body)
