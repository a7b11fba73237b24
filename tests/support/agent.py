"""The agent in the test's process: real store, real core, a driver that the test writes by the
line.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from agent.audit.context import AuditContext, AuditOptions
from agent.audit.fleet import Fleet
from agent.driver.interface import HostContext
from agent.driver.worker import DriverWorker
from agent.model.facts import HostFacts
from agent.model.operation import Operation
from agent.model.provider_tree import ProviderTree
from agent.model.report import NodeReport, Report
from agent.pci.settings import PciSettings
from agent.placement import clock
from agent.placement.mirror import Freshness
from agent.placement.server import Server
from agent.placement.transport import Timeouts, Transport
from agent.provider_config.applying import ProviderConfig
from agent.provider_config.reading import read_folder
from agent.store.engines import FILE_NAME, FOLDER
from agent.store.records import Records
from agent.store.store import open_read_only, open_store
from agent.tracker.node_record import Agent
from agent.tracker.reconcile import ReconcileRules
from agent.tracker.tracker import build_tracker_services
from agent.tracker.usage_step import UsageSettings
from agent.tree.policy import Policy
from tests.support.placement import SERVICE_ROLES, Placement

ROOT = "5f9c2a34-7d1e-4a8b-9c46-000000000001"
IDENTITY = "0e1d2c3b-4a59-4687-8796-000000000009"
NAME = "node-a"
LEASE = 300.0

Shape = Callable[[ProviderTree], None]


@dataclass(frozen=True, slots=True)
class ScriptedFacts(HostFacts):
    """Facts with what shapes the tree, because equal facts have to make equal trees."""

    script: object = None

    @classmethod
    def of(cls, facts: HostFacts, script: object) -> HostFacts:
        """``facts`` with the script; those of another class as they are."""
        if type(facts) is not HostFacts:
            return facts
        return cls(**{one.name: getattr(facts, one.name) for one in fields(facts)}, script=script)


class ScriptedDriver:
    """A driver with facts only for a name; what its tree holds is a function of the test's."""

    def __init__(self, shape: Shape | None = None, nodes: Mapping[str, str] | None = None) -> None:
        self.script: Shape = shape or (lambda _tree: None)
        self.managed = dict(nodes or {ROOT: NAME})
        self.capabilities: dict[str, bool] = {}
        self.facts_of: Callable[[str], HostFacts] = lambda name: HostFacts(
            name, time.time(), "scripted"
        )
        self.calls = 0

    def start(self, host: HostContext) -> None:
        pass

    def stop(self) -> None:
        pass

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        return dict(self.managed)

    def facts(self, name: str) -> HostFacts:
        scripted = type(self).shape is ScriptedDriver.shape
        return ScriptedFacts.of(self.facts_of(name), self.script if scripted else object())

    def is_node_deleted(self, name: str) -> bool:
        return name not in self.managed.values()

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        return self.capabilities

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Any) -> None:
        self.calls += 1
        self.script(tree)


class AgentUnderTest:
    """One host's agent on a Placement. ``once`` is a fresh process over the same store; ``cycle``
    the same process.
    """

    def __init__(
        self, placement: Placement, folder: Path, driver: Any = None, **options: Any
    ) -> None:
        self.placement, self.folder = placement, folder
        self.driver = driver or ScriptedDriver()
        self.policy: Policy = options.pop("policy", Policy())
        self.roles: str = options.pop("roles", SERVICE_ROLES)
        self.max_in_flight: int = options.pop("max_in_flight", 1)
        self.freshness: Freshness = options.pop("freshness", Freshness())
        self.read_timeout: float = options.pop("read_timeout", 30)
        self.url: str | None = options.pop("url", None)
        self.session: Session | None = options.pop("session", None)
        self.provider_files: Path | None = options.pop("provider_files", None)
        self.pci: PciSettings = options.pop("pci", PciSettings())
        self.host: str = options.pop("host", "host-1")
        self.identity: str = options.pop("identity", IDENTITY)
        self.clock: Callable[[], float] = options.pop("clock", clock.now)
        self.connection: str | None = options.pop("connection", None)
        # What the records are written through; the mirror and the journal are not.
        self.through: Callable[[Any], Any] = options.pop("through", lambda store: store)
        self.cancelled = threading.Event()
        assert not options, options
        self._fleet: Fleet | None = None
        self._store: Any = None

    def _start(self, *, dry_run: bool = False) -> Fleet:
        session = self.session or self.placement.session(self.roles)
        adapter = Adapter(
            session,
            service_type="placement",
            **({"endpoint_override": self.url} if self.url else {}),
        )
        transport = Transport(
            adapter,
            timeouts=Timeouts(5, self.read_timeout, self.read_timeout),
            max_in_flight=self.max_in_flight,
            cancelled=self.cancelled,
        )
        self._store = (open_read_only if dry_run else open_store)(self.folder, self.connection)
        server = Server(transport, "http", self._store, keep=not dry_run)
        settings = UsageSettings(
            Agent(self.host, None, LEASE),
            self.policy,
            ReconcileRules(),
            self.pci.rows,
            self.pci.misfits,
            self.pci.aliases,
        )
        self.records = Records(self.through(self._store))
        self.tracking = build_tracker_services(
            self.records, settings, self.clock, lambda _node: None
        )
        config = read_folder(self.provider_files) if self.provider_files else ProviderConfig()
        worker = DriverWorker("scripted")
        context = AuditContext(
            server,
            self.driver,
            worker,
            self.policy,
            self.identity,
            self.cancelled,
            freshness=self.freshness,
            tracking=self.tracking,
            provider_config=config,
            pci=self.pci,
        )
        return Fleet(context, "scripted", self.host, 4)

    def stop(self) -> None:
        """End the process: only the store remains."""
        if self._fleet is not None:
            self._store.close()
            self._fleet = None

    def crash(self) -> None:
        """End the process as ``kill -9`` does: a store in a file keeps what is in its file and its
        write-ahead log now, without the end of a store that is closed.
        """
        file = self.folder / FOLDER / FILE_NAME
        log = file.with_name(f"{FILE_NAME}-wal")
        left = {one: one.read_bytes() for one in (file, log) if one.exists()}
        self.stop()
        if self.connection is None:
            for one, content in left.items():
                # Not another file: who has the store open is told of one that was replaced.
                with one.open("r+b" if one.exists() else "wb") as opened:
                    opened.write(content)
                    opened.truncate()

    def report(self, **mode: Any) -> Report:
        """``agent --once`` in a new process."""
        self.stop()
        self._fleet = self._start(dry_run=mode.get("dry_run", False))
        try:
            return self._fleet.run(AuditOptions(start=True, **mode))
        finally:
            self.stop()

    def once(self, **mode: Any) -> NodeReport:
        """As :meth:`report`, for a driver with one node."""
        (node,) = self.report(**mode).nodes
        return node

    def period(self, *, start: bool = False, **mode: Any) -> Report:
        """One more period of a running process, started if there is none."""
        self._fleet = self._fleet or self._start()
        return self._fleet.run(AuditOptions(start=start, **mode))

    def cycle(self, *, start: bool = False, **mode: Any) -> NodeReport:
        """As :meth:`period`, for a driver with one node."""
        (node,) = self.period(start=start, **mode).nodes
        return node

    @property
    def fleet(self) -> Fleet:
        assert self._fleet is not None
        return self._fleet

    @property
    def transport(self) -> Transport:
        return self.fleet.context.server.transport


def total(amount: int, **fields: Any) -> dict[str, Any]:
    """A complete inventory record."""
    return {
        "total": amount,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": amount,
        "step_size": 1,
        "allocation_ratio": 1.0,
        **fields,
    }


def shaped(
    inventories: Mapping[str, Mapping[str, Any]],
    children: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
    **more: Any,
) -> Shape:
    """A shape: the root's inventories, and children as name → (parent's name, inventories);
    ``traits``: name → traits.
    """

    def shape(tree: ProviderTree) -> None:
        root = tree.roots[0].uuid
        tree.update_inventory(root, inventories)
        for name, (parent, records) in (children or {}).items():
            if not tree.exists(name):
                tree.new_child(name, parent)
            tree.update_inventory(name, records)
        for name, traits in more.get("traits", {}).items():
            tree.add_traits(name, *traits)

    return shape


def operations(node: NodeReport) -> list[Operation]:
    """What was planned or sent."""
    return [outcome.operation for outcome in node.outcomes]


def new_uuid() -> str:
    return str(uuid.uuid4())
