"""The errors that the agent raises on purpose: one hierarchy, each with a code, a message and a
remedy. Those of one part, such as :mod:`agent.tracker.errors`, are defined there.

Callers branch on the type or on ``code``, never on the text. ``message`` is one line that says what
is wrong and names the file, option, endpoint or provider; ``remedy`` says what the operator can do
about it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from agent.model.names import masked, printable

# The remedy of an error that only the author of a driver can mend.
DRIVER_FAULT = "report this to whoever wrote the driver"

# Placement's error codes. Decisions depend on status and code, never on text.
CONCURRENT_UPDATE = "placement.concurrent_update"
DUPLICATE_NAME = "placement.duplicate_name"
INVENTORY_IN_USE = "placement.inventory.inuse"
PROVIDER_IN_USE = "placement.resource_provider.inuse"
UNDEFINED = "placement.undefined_code"
HAS_CHILDREN = "placement.resource_provider.cannot_delete_parent"
OUTAGE_STATUSES = frozenset({408, 429, 502, 503, 504})
UNCERTAIN_STATUSES = OUTAGE_STATUSES | {500}
"""Statuses that do not say what became of a write: of a failure after it, or of a proxy in front of
Placement that has asked Placement before.
"""
FRONT_STATUSES = frozenset({401, 413})
"""Statuses of refusals in another form than Placement's: by what checks tokens (401, also inside
Placement's process) and by what limits the length of a body (413). Of a reshape they say as little
as the uncertain ones, because it may have been passed on before.
"""
CLOSED = "closed"
"""The kind of failure of a request on a connection that the server had closed."""


class AgentError(Exception):
    """Base of all errors of the agent.
    Remedy: do what the message says; report an error without a remedy.
    """

    code = "agent.error"
    fatal = False
    """Waiting does not mend the error."""

    def __init__(self, message: str, remedy: str = "", **data: Any) -> None:
        # Masked here, because an error's text goes everywhere, and libraries quote URLs with their
        # passwords.
        message = masked(message)
        super().__init__(message)
        self.message = message
        self.remedy = masked(remedy)
        self.data: Mapping[str, Any] = data

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class ConfigError(AgentError):
    """An option, file or combination of them that cannot be used.
    Remedy: correct what the message names; ``agent config check`` lists all errors at once.
    """

    code = "config.invalid"
    fatal = True


class ConfigErrors(ConfigError):
    """Everything that is wrong with a configuration."""

    code = "config.invalid"

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__(
            "; ".join(error.message for error in errors),
            remedy=errors[0].remedy if len(errors) == 1 else "",
        )
        self.errors = tuple(errors)

    @classmethod
    def raise_if_any(cls, errors: Sequence[ConfigError]) -> None:
        """Raise one error with all of ``errors``; nothing if there are none."""
        if errors:
            raise cls(errors)


@contextmanager
def gathering(errors: list[ConfigError] | list[AgentError]) -> Iterator[None]:
    """Add what is wrong with a configuration to ``errors``, instead of raising it from the block,
    so that everything that is wrong is reported at once.
    """
    try:
        yield
    except ConfigErrors as several:
        errors.extend(several.errors)
    except ConfigError as error:
        errors.append(error)


class ObservesOnly(AgentError):
    """Something that writes, in an agent that only observes. ``refused``: what was not done.
    Remedy: ask the program that manages the nodes, or set ``[DEFAULT] mode = manage``.
    """

    code = "agent.observes-only"

    def __init__(self, refused: str) -> None:
        super().__init__(
            f"{refused}: [DEFAULT] mode is observe, because another program manages the nodes of "
            "this host",
            "ask that program; or set [DEFAULT] mode = manage, if this agent is to manage the "
            "nodes instead",
        )


class UsageError(AgentError):
    """A command line that cannot be used. ``usage`` shows the right one.
    Remedy: see ``agent help COMMAND``.
    """

    code = "usage.invalid"

    def __init__(self, message: str, remedy: str = "", *, usage: str = "", **data: Any) -> None:
        super().__init__(message, remedy, **data)
        self.usage = usage


class AgentBug(AgentError):
    """An unexpected exception: a bug of the agent or of a driver.
    Remedy: report it, with the log.
    """

    code = "agent.bug"

    def __init__(self, message: str) -> None:
        super().__init__(message, "report it, with the log")

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Return the error that callers see for an unexpected exception."""
        return cls(
            f"unexpected error: {type(error).__name__}: {printable(masked(str(error))[:500])}"
        )


class AlreadyTold(AgentError):
    """The error was reported already; ``exit_code`` is the exit code of the process.
    Remedy: see the document that was written before; this code is never shown.
    """

    code = "agent.already-told"

    def __init__(self, exit_code: int) -> None:
        super().__init__("told already")
        self.exit_code = exit_code


class OutputFailed(AgentError):
    """stdout cannot be written, so no more output is possible.
    Remedy: look at what stdout leads to: a full disk, or a program that ended.
    """

    code = "output.failed"


# --- drivers --------------------------------------------------------------------------------------


class DriverError(AgentError):
    """A driver could not do its work; the message names driver and node.
    Remedy: look at what the message names; report it to the author of the driver if that is in
    order.
    """

    code = "driver.failed"


class NotReady(DriverError):
    """The backend does not answer now; a later call may succeed.
    Remedy: see to the hypervisor's service; the agent asks again with every audit.
    """

    code = "driver.not-ready"


class DriverTimeout(DriverError):
    """A driver call passed its deadline and was abandoned.
    Remedy: see why the hypervisor does not answer; ``agent status`` counts the calls that hang.
    """

    code = "driver.timeout"


class DriverCancelled(DriverError):
    """A driver call was not waited for, because the agent is stopping.
    Remedy: none is needed; the next start asks again.
    """

    code = "driver.cancelled"


class ReshapeNeeded(AgentError):
    """Inventory that may be allocated has to move, and whoever shapes the tree was not given the
    allocations. At the start the core reads them and shapes the tree again; in any other audit the
    node reports this error.
    Remedy: restart or reload the agent, because allocations move to another layout only then.
    """

    code = "reshape.needed"

    def __init__(
        self,
        message: str = "inventory that may be allocated must move to another provider",
        remedy: str = "",
        **data: Any,
    ) -> None:
        super().__init__(message, remedy, **data)


class ReshapeFailed(AgentError):
    """A reshape cannot be done, as far as is known; the changes before it stay.
    Remedy: do what the message says; the next pass reads what Placement has.
    """

    code = "reshape.failed"

    def __init__(
        self, message: str = "the driver could not reshape", remedy: str = "", **data: Any
    ) -> None:
        super().__init__(message, remedy, **data)


class Undecided(AgentError):
    """It is unknown whether a guest fits: the search was given up after a number of steps, which
    are counted and not timed.
    Remedy: make the request simpler, or use another host.
    """

    code = "fit.undecided"


# --- store ----------------------------------------------------------------------------------------


class StoreError(AgentError):
    """The store cannot be read or written.
    Remedy: see to the disk or the database that the message names.
    """

    code = "store.unusable"


class StoreLocked(StoreError):
    """Another run holds the store.
    Remedy: use ``agent status``, or ask the running agent for an audit; else wait for that run.
    """

    code = "store.locked"


class RecordConflict(StoreError):
    """Another writer changed the same records meanwhile; nothing was written. A plan from the
    records as they are now may succeed.
    Remedy: try again.
    """

    code = "store.conflict"

    def __init__(self, message: str, remedy: str = "try again", **data: Any) -> None:
        super().__init__(message, remedy, **data)


class IdentityError(StoreError):
    """The node's persisted identity is damaged, or nova's files contradict each other.
    Remedy: put the right uuid into the file that the message names.
    """

    code = "identity.mismatch"


# --- other agents ---------------------------------------------------------------------------------


class StandingBy(AgentError):
    """Another agent manages these nodes; this one takes over when that agent is gone.
    Remedy: none is needed; stop the other agent if this one is to take over.
    """

    code = "agent.standing-by"


# --- Placement ------------------------------------------------------------------------------------


class PlacementError(AgentError):
    """Any error in talking to Placement.
    Remedy: do what the message says.
    """

    code = "placement.error"
    outcome_unknown = False
    """Placement may have applied a write although it did not confirm it: the request was sent, and
    no answer of Placement came, or one of ``UNCERTAIN_STATUSES``. Says nothing of a read.
    """
    is_closed = False
    """The server had closed the connection of the request: it answers on a new one, so that the
    outcome can be asked for at once.
    """
    is_conflict = False
    """Somebody else wrote in between, so that the state has to be read again."""
    is_in_use = False
    """Allocations prevent the removal of an inventory or a provider."""
    is_outage = False
    """The service, or something in front of it, cannot answer now."""


class PlacementUnreachable(PlacementError):
    """No usable answer came.

    ``kind`` says how it failed. ``outcome_unknown``: a write may have been applied all the same.
    Remedy: see to the network, the endpoint and keystone; the agent tries again with every
    audit.
    """

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
        self.is_closed = kind == CLOSED
        self.fatal = fatal


class PlacementRefused(PlacementError):
    """Placement answered with an error, ``status`` and ``placement_code``; ``detail`` is its own
    text, as it came.
    Remedy: see the message, which has Placement's own words; status 401 and 403 are of the
    account.
    """

    code = "placement.refused"

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        status: int,
        placement_code: str = "",
        detail: str = "",
        **data: Any,
    ) -> None:
        super().__init__(message, remedy, **data)
        self.detail = detail
        self.status = status
        self.placement_code = placement_code
        self.fatal = status == 401
        self.is_outage = status in OUTAGE_STATUSES
        self.outcome_unknown = status in UNCERTAIN_STATUSES
        self.is_conflict = status == 409 and placement_code == CONCURRENT_UPDATE
        self.is_in_use = status == 409 and placement_code in (INVENTORY_IN_USE, PROVIDER_IN_USE)


class PlacementNotDone(PlacementError):
    """The answer to a write confirms it, and shows that it was not done.
    Remedy: have what stands in front of Placement pass writes on; the next pass writes it again.
    """

    code = "placement.not-done"


class PlacementTooOld(PlacementError):
    """The server's highest microversion is below what the agent needs.
    Remedy: upgrade Placement.
    """

    code = "placement.too-old"
    fatal = True


class GenerationConflict(PlacementError):
    """Another writer changed the tree between reading and writing.

    As the result of an audit: more often than the agent retries.
    Remedy: try again; find the other writer if this lasts.
    """

    code = "placement.conflict"


class ReshapeConflict(GenerationConflict):
    """Another writer changed what a reshape is about, or the answer to the reshape was lost: then
    ``outcome_unknown`` is true.
    """

    def __init__(self, message: str, remedy: str = "", *, outcome_unknown: bool = False) -> None:
        super().__init__(message, remedy)
        self.outcome_unknown = outcome_unknown


class ProviderNameConflict(PlacementError):
    """The provider's name is held by another uuid.
    Remedy: rename one of both, or take the other one over with ``agent identity set UUID``.
    """

    code = "placement.name-conflict"


class ProviderIdentityConflict(PlacementError):
    """The provider's uuid exists with another name or under another parent.
    Remedy: if the host got another name, ``agent identity rename``; if the uuid is another host's,
    ``agent identity set`` with its own; if somebody renamed or moved it, its name and parent back.
    """

    code = "placement.identity-conflict"


class AdoptionNeeded(AgentError):
    """The desired tree cannot be reached in a tree that another owner made, before the operator has
    the agent take it over.
    Remedy: look at ``agent --once --adopt --dry-run``, then run it without ``--dry-run``.
    """

    code = "tree.not-adopted"


class InvalidTree(AgentError):
    """The desired tree breaks a rule of Placement.
    Remedy: correct the option, provider file or driver that the message names.
    """

    code = "tree.invalid"
