"""Agents with the driver ``ironic``, in the test's process: which ironic, which store, whose clock,
a test decides.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.audit.context import AuditContext, AuditOptions
from agent.audit.fleet import Fleet
from agent.conf import options as agent_options
from agent.driver.interface import HostContext
from agent.driver.worker import DriverWorker
from agent.model.report import NodeReport, Report
from agent.placement.server import Server
from agent.placement.transport import Timeouts, Transport
from agent.store.records import Records
from agent.store.store import open_read_only
from agent.tracker.node_record import Agent
from agent.tracker.reconcile import ReconcileRules
from agent.tracker.tracker import build_tracker_services
from agent.tracker.usage_step import UsageSettings
from agent.tree.policy import Policy
from drivers.ironic import IronicDriver
from tests.support.ini import Config, Value, write_config
from tests.support.placement import Placement
from tests.support.store_place import Place
from tests.support.tracking import Time

LEASE = 300.0
IDENTITY = "3c1b2a09-8f7e-4d6c-9b5a-000000000001"


def options(folder: Path, config: Config) -> cfg.ConfigOpts:
    """The agent's options with these values."""
    conf = cfg.ConfigOpts()
    agent_options.register(conf)
    conf(
        args=[],
        default_config_files=[str(write_config(folder / "agent.conf", config))],
        default_config_dirs=[],
    )
    return conf


class MetalAgent:
    """One process of an agent called ``host``. ``ironic``: its section [ironic]; ``more``: other
    sections.
    """

    def __init__(
        self,
        placement: Placement,
        place: Place,
        ironic: Mapping[str, Value],
        *,
        host: str = "metal-1",
        clock: Callable[[], float] | None = None,
        full_audit_interval: float = 600,
        **more: Mapping[str, Value],
    ) -> None:
        self.placement, self.place, self.host, self.clock = placement, place, host, clock or Time()
        self._interval = full_audit_interval
        self.conf = options(
            place.folder / host, {"ironic": {"api_max_retries": 0, **ironic}, **more}
        )
        self.driver = IronicDriver(self.conf)
        self._fleet: Fleet | None = None

    def start(self, *, dry_run: bool = False) -> Fleet:
        """The fleet, with the driver started."""
        if self._fleet is None:
            self._store = (
                open_read_only(self.place.folder, self.place.url) if dry_run else self.place.open()
            )
            transport = Transport(
                self.placement.adapter(),
                timeouts=Timeouts(5, 30, 30),
                max_in_flight=1,
                cancelled=threading.Event(),
            )
            settings = UsageSettings(
                Agent(self.host, None, LEASE), Policy(), ReconcileRules(), lambda _node, _facts: ()
            )
            self.records = Records(self._store)
            self.tracking = build_tracker_services(
                self.records, settings, self.clock, lambda _node: None
            )
            self.driver.start(HostContext(self.host, IDENTITY, self.place.folder))
            context = AuditContext(
                Server(transport, "http", self._store, keep=not dry_run),
                self.driver,
                DriverWorker("ironic"),
                Policy(),
                self.host,
                threading.Event(),
                tracking=self.tracking,
            )
            self._fleet = Fleet(context, "ironic", self.host, 4, full_audit_interval=self._interval)
        return self._fleet

    def run(self, *names: str, dry_run: bool = False, **mode: Any) -> Report:
        """One pass of the process, which starts if it does not run; a dry run is a process of its
        own.
        """
        if dry_run:
            self.kill()
        try:
            return self.start(dry_run=dry_run).run(
                AuditOptions(start=True, dry_run=dry_run, **mode), names
            )
        finally:
            if dry_run:
                self.kill()

    def nodes(self, *names: str, **mode: Any) -> dict[str, NodeReport]:
        """The nodes of a pass that was right as a whole, by uuid."""
        report = self.run(*names, **mode)
        assert not report.errors, report.errors
        return {one.uuid: one for one in report.nodes}

    def stop(self) -> None:
        """End in order: whoever waits for the nodes can have them."""
        if self._fleet is not None:
            self.driver.stop()
            self.tracking.node_leases.release()
            self.tracking.shared_lease.release()
        self.kill()

    def kill(self) -> None:
        """End the process: only the store remains."""
        if self._fleet is not None:
            self._store.close()
            self._fleet = None


def audited(report: Report) -> set[str]:
    """The nodes that the pass really looked at."""
    return {one.uuid for one in report.nodes if one.seconds}
