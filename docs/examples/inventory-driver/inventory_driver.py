"""The driver ``inventory``: the hosts of one site, as the site's inventory exports them in a JSON
file, with the licences that each host has for its guests.
"""

import json
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from oslo_config import cfg

from agent.driver.interface import Allocations, HostContext
from agent.errors import ConfigError, DriverError, NotReady
from agent.model.facts import CpuFacts, HostFacts
from agent.model.provider_tree import ProviderTree

OPTIONS = [
    cfg.StrOpt("file", help="The JSON file that the inventory exports."),
    cfg.StrOpt("site", help="Only hosts of this site are managed; unset: all."),
]


@dataclass(frozen=True, slots=True)
class InventoryFacts(HostFacts):
    """Facts that carry what only this driver knows of a host, so that shape() needs no I/O."""

    licences: tuple[tuple[str, int], ...] = ()
    """Pairs of the resource class of a licence and how many guests may have one."""


class InventoryDriver:
    """Each host of the file is a node; its licences are counted by a child provider."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        conf.register_opts(OPTIONS, group="inventory")
        self._file: str | None = conf.inventory.file
        self._site: str | None = conf.inventory.site
        # Replaced as a whole by each reading, never edited: threads may use it meanwhile.
        self._hosts: Mapping[str, Mapping[str, Any]] | None = None

    # --- before the start -------------------------------------------------------------------------

    def check(self, host: str) -> None:
        """Check that there is a file to read. ``agent config check`` calls this."""
        if not self._file or not Path(self._file).is_file():
            raise ConfigError(
                f"[inventory] file = {self._file}: no such file", "name the exported JSON file"
            )

    def option_warnings(self) -> Sequence[str]:
        """Warn of options that are valid and yet do something else than they seem to."""
        if self._site is not None and not self._site.strip():
            return ["[inventory] site is empty: no host has an empty site; leave it unset for all"]
        return []

    # --- every driver -----------------------------------------------------------------------------

    def start(self, host: HostContext) -> None:
        """Read the file once, so that a file that cannot be used is an error of the start."""
        self.check(host.name)
        self._hosts = self._read()

    def stop(self) -> None:
        """Forget the hosts. Nothing is held open."""
        self._hosts = None

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        """Return all hosts of the site. The uuids are the inventory's own, so that they stay."""
        known = self._started()
        if refresh:
            known = self._hosts = self._read()
        return {host["uuid"]: name for name, host in known.items()}

    def facts(self, name: str) -> InventoryFacts:
        """Return what the host has."""
        host = self._started().get(name)
        if host is None:
            raise DriverError(f"the inventory has no host {name!r}", "ask for one of its hosts")
        disk = host.get("disk_gib")
        return InventoryFacts(
            name=name,
            taken_at=time.time(),
            hypervisor_type="inventory",
            cpu=CpuFacts(frozenset(range(host["cpus"])), host.get("architecture", "x86_64")),
            memory_mib=host["memory_mib"],
            disk_gib=disk,
            # A section that could not be read is named; the node keeps its last value of it.
            incomplete={} if disk is not None else {"disk": "the inventory has no disk yet"},
            licences=tuple(sorted(host.get("licences", {}).items())),
        )

    def is_node_deleted(self, name: str) -> bool:
        """Whether the inventory has retired the host: only then its providers are deleted."""
        self._started()
        return name not in self._read()

    # --- what the core does not derive from the facts ---------------------------------------------

    def shape(self, tree: ProviderTree, facts: HostFacts, allocations: Allocations | None) -> None:
        """Count the licences of the host in a child provider."""
        if not isinstance(facts, InventoryFacts) or not facts.licences:
            return
        child = f"{facts.name}_licences"
        if not tree.exists(child):
            tree.new_child(child, facts.name)
        tree.update_inventory(
            child, {name: {"total": total, "max_unit": 1} for name, total in facts.licences}
        )

    def mark(self, name: str) -> Hashable:
        """Return what decides the tree of the host, from memory: an equal mark saves an audit."""
        return json.dumps(self._started().get(name), sort_keys=True)

    # --- helpers ----------------------------------------------------------------------------------

    def _started(self) -> Mapping[str, Mapping[str, Any]]:
        if self._hosts is None:
            raise NotReady("the inventory driver is not started", "start it first")
        return self._hosts

    def _read(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the hosts of the site by name; an error is never an empty list of hosts."""
        try:
            document = json.loads(Path(self._file or "").read_text(encoding="utf-8"))
            return {
                host["name"]: {
                    **host,
                    "uuid": str(UUID(host["uuid"])),
                    "cpus": int(host["cpus"]),
                    "memory_mib": int(host["memory_mib"]),
                }
                for host in document["hosts"]
                if self._site is None or host.get("site") == self._site
            }
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise NotReady(
                f"[inventory] file = {self._file}: it cannot be read: {error}",
                "wait for the next export, or correct the file",
            ) from error
