"""A hypervisor of a walk: what it shows now, and its agent in the test's process behind the real
API, which may end at any write.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from falcon.testing import create_environ

from agent.api.access import Access, Peer
from agent.api.application import PEER, application
from agent.api.client import ApiAnswer, ApiClient, ApiProblem, ApiUnreachable
from agent.api.metrics import Metrics
from agent.api.record_views import RecordViews
from agent.api.service import Service
from agent.errors import AgentError, StoreError
from agent.model.devices import AssignableUnit
from agent.model.facts import Cell, CpuFacts, Domain, HostFacts, Topology
from agent.model.finding import Problem
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.report import NodeReport
from agent.numa.host_policy import HostPolicy
from agent.pci.device_request import aliases
from agent.pci.settings import PciSettings
from agent.render.document import problems_of
from agent.tree.policy import Layout, Policy
from tests.support import local_api
from tests.support.agent import AgentUnderTest, ScriptedDriver
from tests.support.broken_store import Fault, FaultyStore
from tests.support.compute_host import GPU, KINDS, UNITS, VF
from tests.support.database_trouble import DatabaseTrouble
from tests.support.machine import CARD, FUNCTIONS, GPUS, NAMESPACES, Lie, Machine
from tests.support.placement import PlacementServer
from tests.support.tracking import Time, uuid_of
from tests.unit.pci import scene

RESERVED_MEMORY_MIB, RESERVED_DISK_MIB = 512, 2048
VCPU_RATIO = 4

DEVICES = {
    **dict.fromkeys(FUNCTIONS, (scene.NAMES[CARD].upper(), VF)),
    **{one: (scene.NAMES[one].upper(), GPU) for one in GPUS},
    **dict.fromkeys(NAMESPACES, ("", UNITS)),
}
"""Which provider offers each device and unit, by what is behind the node's name in its own, and in which class."""


_ALIASES, _ = aliases(
    [json.dumps({"name": name, **one}) for name, one in KINDS.items()], report=True
)
_PCI = PciSettings(scene.specs(*KINDS.values()), _ALIASES, report=True)
_DESCRIBED = local_api.Described()


class WalkedHost:
    """``lost``: the devices and units that it does not show. ``lie``: what its driver answers
    instead of the truth. ``domains``: of its guests. ``offline``: CPUs that do not run.

    ``url``: the database that hosts share, None for a store of its own. ``fault``: what happens to
    the next write of records; ``database``: what happens to the database below. ``alone``: whether
    nobody else has its store open when it is killed; who only looks closes it then.
    """

    def __init__(
        self,
        name: str,
        placement: PlacementServer,
        folder: Path,
        url: str | None,
        time: Time,
        node: str | None = None,
        machine: Machine | None = None,
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
        self.machine = machine or Machine()
        self.lost: set[str] = set(self.machine.absent)
        self.memory_mib, self.disk_gib = 2 * 65536, 2000
        self.offline: frozenset[int] = frozenset()
        self.lie: Lie | None = None
        self.dead = False
        self.domains: dict[str, Domain] = {}
        self.fault: Fault | None = None
        self.database = DatabaseTrouble()
        self.alone: Callable[[], bool] = lambda: True
        self._agent: AgentUnderTest | None = None
        self._application: Any = None
        self._store: FaultyStore | None = None
        self.client = _ClientHere(self)

    # --- what it shows ----------------------------------------------------------------------------

    def facts(self, name: str) -> HostFacts:
        """All of it, or what the driver says instead."""
        cells = self.machine.cells
        facts = HostFacts(
            name,
            self.time(),
            "QEMU",
            cpu=CpuFacts(frozenset().union(*cells) - self.offline),
            memory_mib=self.memory_mib,
            disk_gib=self.disk_gib,
            numa=Topology(
                tuple(
                    Cell(number, cpus - self.offline, self.memory_mib // len(cells))
                    for number, cpus in enumerate(cells)
                )
            ),
            pci=tuple(self._devices()),
            units=tuple(AssignableUnit(UNITS, one) for one in NAMESPACES if one not in self.lost),
            domains=tuple(self.domains.values()),
        )
        return facts if self.lie is None else self.lie.told(facts)

    def managed(self) -> dict[str, str]:
        """Its node, by its uuid, or what the driver says instead."""
        found = {str(self.identity): self.node}
        return found if self.lie is None else self.lie.nodes(found)

    def _devices(self) -> Any:
        functions = [one for one in FUNCTIONS if one not in self.lost]
        last = len(self.machine.cells) - 1
        yield scene.physical(CARD, *functions, numa_node=min(1, last))
        yield from (scene.virtual(one, CARD, numa_node=min(1, last)) for one in functions)
        yield from (
            scene.plain(one, numa_node=min(number, last))
            for number, one in enumerate(GPUS)
            if one not in self.lost
        )

    @property
    def running_shared(self) -> frozenset[int]:
        """The shared CPUs that run."""
        return self.machine.shared - self.offline

    def shows(self, guest: str, memory_mib: int, vcpus: int) -> None:
        """A guest is here."""
        self.domains[guest] = Domain(
            ConsumerUuid(guest), f"instance-{guest[:8]}", memory_mib, vcpus
        )

    def offers(self, layout: Layout) -> dict[tuple[str, str], float]:
        """What guests can have of each provider, by what is behind the node's name in its own, and
        class: what there is, in a layout.
        """
        cells = self.machine.dedicated
        dedicated = {
            "flat": {"": sum(map(len, cells))},
            "nested": {f"NUMA{number}": len(cpus) for number, cpus in enumerate(cells)},
        }[layout]
        found = Counter(
            {
                ("", "VCPU"): VCPU_RATIO * len(self.running_shared),
                ("", "MEMORY_MB"): self.memory_mib - RESERVED_MEMORY_MIB,
                ("", "DISK_GB"): self.disk_gib - RESERVED_DISK_MIB // 1024,
            }
        )
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
        driver = _Driver(self)
        policy = Policy(
            HostPolicy(self.machine.shared, frozenset().union(*self.machine.dedicated)),
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
        nodes, errors = self._pass()
        # Without an answer of Placement there is nothing to tell of any node.
        (report,) = nodes or (
            NodeReport(self.node, self.identity, "scripted", "failed", errors=errors),
        )
        if self._application is None:
            service = Service(lambda: None)
            service.set_records(RecordViews(self.agent.records, self.name))
            service.set_context(self.agent.fleet.context, audited=True)
            self._application = application(service, lambda: Access(0), Metrics(), 1, 1)
        return report

    def _pass(self) -> tuple[Sequence[NodeReport], Sequence[Problem]]:
        try:
            found = self.agent.period(start=True)
        except AgentError as error:
            return (), problems_of(error)
        return found.nodes, found.errors

    def kill(self) -> None:
        """It ends at once: nothing is given back or told, and its store is not closed."""
        if self._agent is not None:
            # The files cannot be put back below another agent's feet.
            (self._agent.crash if self.alone() else self._agent.stop)()
        self._forget()

    def _forget(self) -> None:
        self._agent, self._application, self._store, self.fault = None, None, None, None

    def strikes(self, fault: Fault | None) -> None:
        """What happens to the next write of records."""
        self.fault = fault
        if self._store is not None:
            self._store.fault = fault

    def _through(self, store: Any) -> FaultyStore:
        self._store = FaultyStore(store)
        self._store.fault = self.fault
        self.database.attach(store)
        return self._store

    def stop(self) -> None:
        """It ends in order, and lets go of its node."""
        if self._agent is not None:
            with suppress(StoreError):
                self._agent.tracking.node_leases.release()
            self._agent.stop()
        self._forget()

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


class _Driver(ScriptedDriver):
    """Says what the host says."""

    def __init__(self, host: WalkedHost) -> None:
        super().__init__(nodes={host.identity: host.node})
        self._host, self.facts_of = host, host.facts

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        return self._host.managed()


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
