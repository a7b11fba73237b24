"""What a merge finds wrong: drift, parts of the desired tree that are set aside, and names that are
in use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.errors import ProviderNameConflict
from agent.model.names import ProviderUuid, child_uuid, printable
from agent.model.provider import Provider
from agent.model.report import Drift

ADOPT = "agent --once --adopt takes the tree over"


@dataclass(frozen=True, slots=True)
class Use:
    """The usage of one class: the allocated amount, and the number of consumers if it was read."""

    amount: int
    consumers: int | None = None

    def __str__(self) -> str:
        to = (
            f" to {self.consumers} consumer{'' if self.consumers == 1 else 's'}"
            if self.consumers
            else ""
        )
        return f"{self.amount} of it are allocated{to}"


Usages = Mapping[ProviderUuid, Mapping[str, Use]]


@dataclass(frozen=True, slots=True)
class MergeFindings:
    """The findings of one merge, in the order in which they are reported."""

    drift: list[Drift] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    """What of the desired tree is set aside, and why."""
    conflicts: list[ProviderNameConflict] = field(default_factory=list)
    """Children that cannot be created because providers of others have their names."""

    def add_adoption_needed(self, provider: Provider, why: str) -> None:
        """Add drift for a change that is not made because the tree is not adopted."""
        self.drift.append(
            Drift(
                "adoption-needed",
                "warning",
                f"{printable(provider.name)}: {why}, but the tree is not adopted",
                ADOPT,
                provider.uuid,
            )
        )

    def add_held(
        self, provider: Provider, name: str, use: Use, *, foreign: bool, configured: bool
    ) -> None:
        """Add drift for a class that is gone from the node and still used.

        :param foreign: whether the class is somebody else's.
        :param configured: whether the class came from a provider config file.
        """
        gone = (
            f"the node does not have it any more, but it stays because {name} is somebody else's"
            if foreign
            else f"no file gives it {name} any more"
            if configured
            else f"{name} is gone from the node"
        )
        self.drift.append(
            Drift(
                "held-device",
                "warning",
                f"{printable(provider.name)}: {gone} {'and' if foreign else 'but'} {use}",
                "move or delete its consumers"
                + ("" if foreign else "; until then nothing new can claim it"),
                provider.uuid,
            )
        )

    def add_foreign(self, provider: Provider, *, removed: bool, changed: bool) -> None:
        """Add drift for a provider of somebody else.

        :param removed: whether the driver removed it.
        :param changed: whether the driver changed it.
        """
        name = printable(provider.name)
        what, remedy = (
            (f"the driver wanted to remove {name}, which is somebody else's", "none; it stays")
            if removed
            else (f"the driver wanted to change {name}, which is somebody else's", ADOPT)
            if changed
            else (f"{name} was put there by somebody else", "none; it stays as it is")
        )
        self.drift.append(
            Drift(
                "foreign-provider",
                "warning" if changed and not removed else "info",
                what,
                remedy,
                provider.uuid,
            )
        )

    def add_name_conflict(
        self, missing: ProviderUuid, holder: Provider, root: ProviderUuid
    ) -> None:
        """Add the conflict for a child of the agent whose name is held by ``holder``."""
        self.conflicts.append(
            ProviderNameConflict(
                (
                    f"the name {printable(holder.name)!r} of provider {missing} is held by "
                    f"provider {holder.uuid} in Placement, which is somebody else's"
                ),
                # A driver that chooses the uuids of its children cannot use a provider with
                # another uuid.
                f"{ADOPT}, that provider too; or delete or rename it"
                if missing == child_uuid(root, holder.name)
                else "delete or rename that provider",
                holder=holder.uuid,
                uuid=missing,
            )
        )
