"""A compute node: a unit of capacity that one agent manages on one host."""

from dataclasses import dataclass

from agent.model.names import ProviderUuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """``node``: its uuid, or that of a lease on many, see :mod:`agent.tracker.shared_lease`.

    ``expires_at`` in seconds since the epoch; ``version``: see :mod:`agent.model.node_records`.
    """

    node: ProviderUuid
    host: str
    expires_at: float
    version: int = 0

    def live(self, now: float) -> bool:
        """Whether the holder can still be there."""
        return now < self.expires_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeNode:
    """What is kept of a node. ``uuid`` is also that of its root provider; ``name`` is the driver's
    and the root's.

    Totals are those last seen, memory in MiB, disk in GiB; what is used is never kept, because the
    claims tell. ``dirty``: something was promised or given back that is not yet published.
    ``version`` grows with every change of the node or of its claims, devices and units, so that
    whoever has them in memory notices; times in seconds since the epoch.
    """

    uuid: ProviderUuid
    host: str
    name: str
    host_ip: str | None = None
    vcpus: int | None = None
    memory_mb: int | None = None
    local_gb: int | None = None
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    cpu_info: str = ""
    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    failed_builds: int = 0
    dirty: bool = False
    deleted: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0
    version: int = 0
