"""Every error the agent raises on purpose: one hierarchy, each with a code, a message and a remedy.

Callers branch on the type or on ``code``, never on the text. ``message`` is one line that says what
is wrong and names the file, option, endpoint or provider; ``remedy`` says what the operator can do
about it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from agent.model.names import masked, printable

# The remedy of what nobody else can mend.
DRIVER_FAULT = "report this to whoever wrote the driver"


class AgentError(Exception):
    """Base of all errors of the agent. ``fatal``: no waiting will mend it."""

    code = "agent.error"
    fatal = False

    def __init__(self, message: str, remedy: str = "", **data: Any) -> None:
        # Here, because an error's text goes everywhere, and libraries quote the URLs that they were
        # given.
        message = masked(message)
        super().__init__(message)
        self.message = message
        self.remedy = masked(remedy)
        self.data: Mapping[str, Any] = data

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class ConfigError(AgentError):
    """An option, file or combination of them that cannot be used."""

    code = "config.invalid"
    fatal = True


class ConfigErrors(ConfigError):
    """Everything wrong with a configuration, found in one look."""

    code = "config.invalid"

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__(
            "; ".join(error.message for error in errors),
            remedy=errors[0].remedy if len(errors) == 1 else "",
        )
        self.errors = tuple(errors)


class UsageError(AgentError):
    """A command line that makes no sense. ``usage`` says how it would."""

    code = "usage.invalid"

    def __init__(self, message: str, remedy: str = "", *, usage: str = "", **data: Any) -> None:
        super().__init__(message, remedy, **data)
        self.usage = usage


class AgentBug(AgentError):
    """What should not happen."""

    code = "agent.bug"

    def __init__(self, message: str) -> None:
        super().__init__(message, "report it, with the log")

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """The error that callers see for one that nobody foresaw."""
        return cls(
            f"unexpected error: {type(error).__name__}: {printable(masked(str(error))[:500])}"
        )


class AlreadyTold(AgentError):
    """All that there is to tell was told; ``exit_code`` is what the process ends with."""

    code = "agent.already-told"

    def __init__(self, exit_code: int) -> None:
        super().__init__("told already")
        self.exit_code = exit_code


class OutputFailed(AgentError):
    """stdout cannot be written, so that nothing more can be said there."""

    code = "output.failed"


# --- drivers --------------------------------------------------------------------------------------


class DriverError(AgentError):
    """A driver could not do its work; the message names driver and node."""

    code = "driver.failed"


class NotReady(DriverError):
    """The backend does not answer now; it is worth asking again later."""

    code = "driver.not-ready"


class DriverTimeout(DriverError):
    """A driver call passed its deadline and was abandoned."""

    code = "driver.timeout"


class DriverCancelled(DriverError):
    """A driver call was not waited for, because the agent is stopping."""

    code = "driver.cancelled"


class DevicesGone(AgentError):
    """Guests have devices that the host does not show any more; they may come back, or the guests
    go.
    """

    code = "devices.gone"


class ReshapeNeeded(AgentError):
    """The driver must move allocated inventory and was not given the allocations to move."""

    code = "reshape.needed"

    def __init__(
        self,
        message: str = "inventory that may be allocated must move to another provider",
        remedy: str = "",
        **data: Any,
    ) -> None:
        super().__init__(message, remedy, **data)


class ReshapeFailed(AgentError):
    """A reshape cannot be done; nothing of it was."""

    code = "reshape.failed"

    def __init__(
        self, message: str = "the driver could not reshape", remedy: str = "", **data: Any
    ) -> None:
        super().__init__(message, remedy, **data)


class Undecided(AgentError):
    """Nobody knows whether a guest fits: the search was given up, after steps that are counted and
    not timed.
    """

    code = "fit.undecided"


# --- store ----------------------------------------------------------------------------------------


class StoreError(AgentError):
    """The store cannot be read or written."""

    code = "store.unusable"


class StoreLocked(StoreError):
    """Another run holds the store."""

    code = "store.locked"


class RecordConflict(StoreError):
    """Somebody else wrote the same records meanwhile; nothing was written. Planned anew on what is
    there now it may succeed.
    """

    code = "store.conflict"

    def __init__(self, message: str, remedy: str = "try again", **data: Any) -> None:
        super().__init__(message, remedy, **data)


class IdentityError(StoreError):
    """The node's persisted identity is damaged or contradicts another one."""

    code = "identity.mismatch"


# --- other agents ---------------------------------------------------------------------------------


class StandingBy(AgentError):
    """Another agent manages these nodes; this one takes over when that one is gone."""

    code = "agent.standing-by"


# --- Placement ------------------------------------------------------------------------------------


class PlacementError(AgentError):
    """Anything that goes wrong in talking to Placement."""

    code = "placement.error"


class PlacementUnreachable(PlacementError):
    """No usable answer came. ``outcome_unknown``: a write may nevertheless have been applied."""

    code = "placement.unreachable"

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        kind: str,
        outcome_unknown: bool = False,
        fatal: bool = False,
        **data: Any,
    ) -> None:
        super().__init__(message, remedy, **data)
        self.kind = kind
        self.outcome_unknown = outcome_unknown
        self.fatal = fatal


class PlacementRefused(PlacementError):
    """Placement answered with an error status. ``status`` and ``placement_code`` say which."""

    code = "placement.refused"

    def __init__(
        self, message: str, remedy: str = "", *, status: int, placement_code: str = "", **data: Any
    ) -> None:
        super().__init__(message, remedy, **data)
        self.status = status
        self.placement_code = placement_code
        self.fatal = status == 401


class PlacementTooOld(PlacementError):
    """The server's highest microversion is below what the agent needs."""

    code = "placement.too-old"
    fatal = True


class GenerationConflict(PlacementError):
    """Somebody else changed the tree between reading and writing, more often than the agent
    retries.
    """

    code = "placement.conflict"


class ReshapeConflict(GenerationConflict):
    """Somebody else changed what a reshape is about, or its answer was lost."""


class ProviderNameConflict(PlacementError):
    """The provider's name is held by another uuid."""

    code = "placement.name-conflict"


class ProviderIdentityConflict(PlacementError):
    """The provider's uuid exists with another name or under another parent."""

    code = "placement.identity-conflict"


class AdoptionNeeded(AgentError):
    """What the node should have cannot be had in a tree that somebody else made, before the
    operator has the agent take it over.
    """

    code = "tree.not-adopted"


class InvalidTree(AgentError):
    """The desired tree breaks a rule that Placement would enforce, or should."""

    code = "tree.invalid"
