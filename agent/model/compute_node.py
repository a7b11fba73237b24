"""Compute node: a unit of capacity that one agent manages on one host."""

from dataclasses import dataclass

from agent.model.names import ProviderUuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of one host to manage a node until a certain time."""

    node: ProviderUuid
    """The uuid of the node, or of a lease on many nodes, see :mod:`agent.tracker.leases`."""
    host: str
    expires_at: float
    """Seconds since the epoch."""
    version: int = 0
    """See :mod:`agent.model.node_records`."""

    def live(self, now: float) -> bool:
        """Return whether the lease has not expired at ``now``."""
        return now < self.expires_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeNode:
    """The record of a node.

    Totals are those last seen. What is used is not recorded, because it is the sum of the claims.
    """

    uuid: ProviderUuid
    """Also the uuid of the root provider."""
    host: str
    name: str
    """The driver's name, also that of the root provider."""
    host_ip: str | None = None
    vcpus: int | None = None
    memory_mb: int | None = None
    """MiB."""
    local_gb: int | None = None
    """GiB."""
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    cpu_info: str = ""
    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    failed_builds: int = 0
    dirty: bool = False
    """Whether resources were promised or given back and that is not published yet."""
    deleted: bool = False
    created_at: float = 0.0
    """Seconds since the epoch."""
    updated_at: float = 0.0
    """Seconds since the epoch."""
    version: int = 0
    """Grows with every change of the node or of its claims, devices and units, so that a process
    that has them in memory notices.
    """
