"""A Placement server as seen by one process: its transport, its capabilities, and the storage of
mirror and journal; and the traits and resource classes that the server knows, read once and
remembered.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Literal, Protocol, TypeVar

from agent.errors import PlacementTooOld, StoreError
from agent.model.mirror import (
    ASK_FOR_TRAIT_AGAIN,
    Journal,
    PlacementView,
    ServerCapabilities,
)
from agent.model.names import ProviderUuid, is_custom
from agent.model.report import LastFound
from agent.placement.client import PlacementClient
from agent.placement.exchange import Exchange
from agent.placement.transport import Transport

LOG = logging.getLogger(__name__)

MEMORY_ONLY = (
    "the mirror of Placement is kept in memory only until this process starts again, and then read "
    "as a whole: %s"
)
Answer = TypeVar("Answer")


class PlacementStorage(Protocol):
    """The storage of mirror and ownership journal. Every save is one durable transaction."""

    def capabilities(self, endpoint: str) -> ServerCapabilities | None:
        """Return the saved capabilities of a server, ``None`` if it was never asked."""

    def save_capabilities(self, capabilities: ServerCapabilities) -> None:
        """Save the capabilities of a server."""

    def view(self, endpoint: str, root: ProviderUuid) -> PlacementView | None:
        """Return the saved view of a node, ``None`` if there is none."""

    def save_view(
        self, endpoint: str, root: ProviderUuid, old: PlacementView | None, new: PlacementView
    ) -> None:
        """Save a view, unless it is equal to ``old``, the view saved before."""

    def journal(self, root: ProviderUuid) -> Journal:
        """Return the journal of a node, empty if there is none."""

    def roots(self, host: str) -> frozenset[ProviderUuid]:
        """Return the nodes whose journal is not empty, without those that are recorded as another
        host's.
        """

    def save_journal(self, root: ProviderUuid, journal: Journal) -> Journal:
        """Save a journal. Return it with its new version.

        :raises RecordConflict: another agent wrote the journal since it was read.
        """

    def last_found(self, host: str) -> Sequence[LastFound]:
        """Return what the last audits of a host's nodes found."""

    def save_found(self, host: str, found: Sequence[LastFound], gone: Collection[str]) -> None:
        """Save what the last audits of nodes of a host found, and forget the nodes ``gone``."""

    def together(self) -> AbstractContextManager[None]:
        """Save the views and journals of the block at its end, in one transaction if possible.

        :raises RecordConflict: another agent wrote one of the journals; none is saved.
        """


class OptionalStorage:
    """``storage`` until its first error, which is logged as a warning; after that, and without one,
    nothing is saved and nothing has been saved.

    For a process that must go on without a store: what the store has from before the error is no
    danger for the next start, because a saved mirror is compared with Placement by generations. And
    for an agent that only observes: it has written nothing to Placement, whatever a store says of
    earlier times.
    """

    def __init__(self, storage: PlacementStorage | None = None) -> None:
        self._storage = storage

    def _ask(self, call: Callable[[PlacementStorage], Answer], otherwise: Answer) -> Answer:
        """Return the answer of the storage, ``otherwise`` without one."""
        try:
            return otherwise if self._storage is None else call(self._storage)
        except StoreError as error:
            LOG.warning(MEMORY_ONLY, error.message)
            self._storage = None
            return otherwise

    def capabilities(self, endpoint: str) -> ServerCapabilities | None:
        """Return the saved capabilities of a server, ``None`` if there are none."""
        return self._ask(lambda storage: storage.capabilities(endpoint), None)

    def save_capabilities(self, capabilities: ServerCapabilities) -> None:
        """Save the capabilities of a server."""
        self._ask(lambda storage: storage.save_capabilities(capabilities), None)

    def view(self, endpoint: str, root: ProviderUuid) -> PlacementView | None:
        """Return the saved view of a node, ``None`` if there is none."""
        return self._ask(lambda storage: storage.view(endpoint, root), None)

    def save_view(
        self, endpoint: str, root: ProviderUuid, old: PlacementView | None, new: PlacementView
    ) -> None:
        """Save a view."""
        self._ask(lambda storage: storage.save_view(endpoint, root, old, new), None)

    def journal(self, root: ProviderUuid) -> Journal:
        """Return the journal of a node, empty if there is none."""
        return self._ask(lambda storage: storage.journal(root), Journal())

    def roots(self, host: str) -> frozenset[ProviderUuid]:
        """Return the nodes whose journal is not empty."""
        return self._ask(lambda storage: storage.roots(host), frozenset[ProviderUuid]())

    def save_journal(self, root: ProviderUuid, journal: Journal) -> Journal:
        """Save a journal. Return it with its new version."""
        return self._ask(lambda storage: storage.save_journal(root, journal), journal)

    def last_found(self, host: str) -> Sequence[LastFound]:
        """Return what the last audits found."""
        return self._ask(lambda storage: storage.last_found(host), ())

    def save_found(self, host: str, found: Sequence[LastFound], gone: Collection[str]) -> None:
        """Save what the last audits found."""
        self._ask(lambda storage: storage.save_found(host, found, gone), None)

    def together(self) -> AbstractContextManager[None]:
        """Do nothing: each save meets the first error by itself."""
        return nullcontext()


LEAST_VERSION = "1.30"
# For how many seconds the agent assumes that the server still lacks, or does not allow, what it
# lacked or refused.
ASK_AGAIN = 3600.0
Backend = Literal["http", "embedded"]


class Server:
    """One Placement server, shared by all nodes of a process."""

    def __init__(
        self,
        transport: Transport,
        backend: Backend,
        storage: PlacementStorage,
        *,
        keep: bool = True,
    ) -> None:
        self.transport, self.backend, self.storage, self.keep = transport, backend, storage, keep
        # ``keep`` False: capabilities are not saved, as in a dry run.
        self.capabilities: ServerCapabilities | None = None
        """The server's capabilities; ``None`` before :meth:`connect`."""
        # When this process last asked for the server's version, and when the server last refused a
        # reshape, in seconds of a monotonic clock.
        self._asked_at: float | None = None
        self._refused_at: float | None = None
        self._lock = threading.Lock()

    def client(self, *, sends: bool = True) -> PlacementClient:
        """Return a client for one cycle, with its own global request id and request count.

        ``sends`` False: a client whose every request raises :class:`MirrorInsufficient`.
        """
        return PlacementClient(Exchange(self.transport, f"req-{uuid.uuid4()}", sends=sends))

    def connect(self, client: PlacementClient, *, ask: bool = False) -> ServerCapabilities:
        """Return the server's capabilities: as saved, or read with one request.

        A refused reshape is remembered for an hour, and not over a restart.

        :param ask: read them even if they are saved.
        :raises PlacementTooOld: the server offers less than the agent needs.
        """
        endpoint = self.transport.endpoint
        with self._lock:
            known = self.capabilities or self.storage.capabilities(endpoint)
            if known is None or known.endpoint != endpoint or ask:
                known = ServerCapabilities(endpoint=endpoint, max_version=client.max_version())
                check_version(known)
                self._save(known)
                self._asked_at, self._refused_at = time.monotonic(), None
            if not known.can_reshape and _long_ago(self._refused_at):
                known = replace(known, can_reshape=True)
            self.capabilities = known
            return known

    def offers_more(self, client: PlacementClient) -> bool:
        """Ask again for the server's version because something is held back for lack of it; at most
        once after a start and then once an hour.

        Return whether the server offers more than before.

        :raises PlacementTooOld: the server offers less than the agent needs.
        """
        with self._lock:
            known = self.capabilities
            if known is None or not _long_ago(self._asked_at):
                return False
            self._asked_at = time.monotonic()
            now = replace(known, max_version=client.max_version())
            if now == known:
                return False
            check_version(now)
            self.capabilities = now
            self._save(now)
            return True

    def learn(self, capabilities: ServerCapabilities) -> ServerCapabilities:
        """Merge what a cycle learned into the capabilities, and save them.

        Several nodes may learn concurrently, so names are only added.
        """
        with self._lock:
            known = self.capabilities or capabilities
            traits, classes = (
                known.traits | capabilities.traits,
                known.classes | capabilities.classes,
            )
            can_reshape = known.can_reshape and capabilities.can_reshape
            merged = replace(
                capabilities,
                max_version=known.max_version,
                traits=traits,
                classes=classes,
                can_reshape=can_reshape,
            )
            if not merged.can_reshape and (known.can_reshape or self._refused_at is None):
                self._refused_at = time.monotonic()
            if merged != known:
                self.capabilities = merged
                self._save(merged)
            return merged

    def forget(self, capabilities: ServerCapabilities) -> None:
        """Replace the known capabilities, because the server contradicted them."""
        with self._lock:
            self.capabilities = capabilities
            self._save(capabilities)

    def _save(self, capabilities: ServerCapabilities) -> None:
        if self.keep:
            self.storage.save_capabilities(capabilities)


def _long_ago(at: float | None) -> bool:
    return at is None or time.monotonic() - at >= ASK_AGAIN


def check_version(capabilities: ServerCapabilities) -> None:
    """Check that a server offers what the agent needs.

    :raises PlacementTooOld: it does not.
    """
    if not capabilities.offers(LEAST_VERSION):
        raise PlacementTooOld(
            (
                f"needs placement {LEAST_VERSION}, server offers {capabilities.max_version} "
                f"({capabilities.endpoint})"
            ),
            "upgrade Placement to OpenStack Rocky or later",
        )
    LOG.info("placement at %s offers %s", capabilities.endpoint, capabilities.max_version)


def learn_traits(
    client: PlacementClient, capabilities: ServerCapabilities, wanted: Iterable[str], now: float
) -> ServerCapabilities:
    """Return ``capabilities`` in which every trait of ``wanted`` is either known, custom and to be
    created, or left out for an hour.

    Nothing is sent if all were asked for before.
    """
    unknown = capabilities.left_out_traits(now)
    asked = {name for name in wanted if name not in capabilities.traits and name not in unknown}
    if not asked:
        return capabilities
    known = client.known_traits(asked)
    for name in sorted(asked - known):
        if not is_custom(name):
            LOG.warning("this Placement does not know the trait %s; it is left out", name)
            unknown[name] = now + ASK_FOR_TRAIT_AGAIN
    return replace(capabilities, traits=capabilities.traits | known, unknown_traits=unknown)


def with_names(
    capabilities: ServerCapabilities, *, traits: Iterable[str] = (), classes: Iterable[str] = ()
) -> ServerCapabilities:
    """Return ``capabilities`` with these names confirmed."""
    return replace(
        capabilities,
        traits=capabilities.traits | set(traits),
        classes=capabilities.classes | set(classes),
    )
