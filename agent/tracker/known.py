"""What the store says of those that an operation is about, read in its transaction."""

from dataclasses import dataclass

from agent.model.assigned_unit import UnitRow
from agent.model.changes import Changes
from agent.model.claim import Claim
from agent.model.held_device import DeviceRow
from agent.model.instance import Instance
from agent.model.migration import Migration

NO_CHANGES = Changes()


@dataclass(frozen=True, slots=True)
class Known:
    """``claim``: the one with the operation's id, released ones too; ``claims``: all open ones of the instance, on any node.

    ``devices`` and ``units`` are those that these claims hold. None and empty where the store knows nothing.
    """

    instance: Instance | None = None
    migration: Migration | None = None
    claim: Claim | None = None
    claims: tuple[Claim, ...] = ()
    devices: tuple[DeviceRow, ...] = ()
    units: tuple[UnitRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """What an operation will write, and the claim that it answers with. ``repeated``: it was done before, nothing is written."""

    claim: Claim
    changes: Changes = NO_CHANGES

    @property
    def repeated(self) -> bool:
        """Whether there is nothing to do."""
        return not self.changes
