"""What nova's API tells of a host: servers, migrations, and the record of nova-compute."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.names import ConsumerUuid

# The tasks of a server during which allocations come, go or move, or the guest has no domain for a
# while: a hard reboot and a start make it anew, and a soft reboot may turn into a hard one.
_MOVING_TASKS = frozenset(
    {
        "scheduling",
        "block_device_mapping",
        "networking",
        "spawning",
        "resize_prep",
        "resize_migrating",
        "resize_migrated",
        "resize_finish",
        "resize_reverting",
        "resize_confirming",
        "migrating",
        "rebuilding",
        "rebuild_block_device_mapping",
        "rebuild_spawning",
        "deleting",
        "soft-deleting",
        "restoring",
        "shelving",
        "shelving_image_pending_upload",
        "shelving_image_uploading",
        "shelving_offloading",
        "unshelving",
        "rebooting",
        "reboot_pending",
        "reboot_started",
        "rebooting_hard",
        "reboot_pending_hard",
        "reboot_started_hard",
        "powering-on",
    }
)
_MOVING_STATUSES = frozenset({"BUILD", "RESIZE", "VERIFY_RESIZE", "REVERT_RESIZE", "MIGRATING"})
_OVER = frozenset({"cancelled", "completed", "confirmed", "done", "error", "failed", "reverted"})


@dataclass(frozen=True, slots=True)
class NovaServer:
    """A server."""

    host: str | None
    """None while it has none, as before it is scheduled or after it was shelved."""
    status: str
    task_state: str | None = None

    @property
    def moving(self) -> bool:
        """Whether nova is at work on its allocation, or waits for a resize to be confirmed."""
        return self.task_state in _MOVING_TASKS or self.status in _MOVING_STATUSES

    def __str__(self) -> str:
        task = f", task {self.task_state}" if self.task_state else ""
        return f"status {self.status}{task}"


@dataclass(frozen=True, slots=True)
class NovaMigration:
    """A migration, which holds the allocation on its source."""

    server: ConsumerUuid
    source: str | None
    target: str | None
    status: str

    @property
    def over(self) -> bool:
        """Whether nova does nothing more with it."""
        return self.status in _OVER


@dataclass(frozen=True, slots=True)
class NovaAnswers:
    """What nova knows of some consumers. One that is nowhere here was not asked for."""

    servers: Mapping[ConsumerUuid, NovaServer] = field(default_factory=dict)
    migrations: Mapping[ConsumerUuid, NovaMigration] = field(default_factory=dict)
    unknown: frozenset[ConsumerUuid] = frozenset()
    """Consumers that are neither a server nor a migration of the host."""


@dataclass(frozen=True, slots=True)
class NovaService:
    """The record that nova-compute keeps of itself."""

    state: str
    """``up`` or ``down``, as nova takes it by the last beat."""
    status: str
    """``enabled`` or ``disabled``, as the operator set it."""
    forced_down: bool
    updated_at: str | None
    age: float | None
    """Seconds since then; None if it is not known."""
