"""One Placement server as a process knows it: the transport, what the server offers, and where that
is kept.
"""

import logging
import threading
import time
import uuid
from dataclasses import replace
from typing import Literal, Protocol

from agent.errors import PlacementTooOld
from agent.model.journal import Journal
from agent.model.mirror import PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid
from agent.placement.client import PlacementClient
from agent.placement.transport import Transport


class PlacementStorage(Protocol):
    """Keeps the mirror and the ownership journal over restarts. Every save is one durable
    transaction.
    """

    def capabilities(self, endpoint: str) -> ServerCapabilities | None:
        """What is known of the server, ``None`` if it was never asked."""

    def save_capabilities(self, capabilities: ServerCapabilities) -> None:
        """Keep what is known of a server."""

    def view(self, endpoint: str, root: ProviderUuid) -> PlacementView | None:
        """The saved view of a node, ``None`` if there is none."""

    def save_view(
        self, endpoint: str, root: ProviderUuid, old: PlacementView | None, new: PlacementView
    ) -> None:
        """Keep a view, writing only what differs from ``old``, which is what was saved before."""

    def journal(self, root: ProviderUuid) -> Journal:
        """The journal of a node, empty if there is none."""

    def roots(self, host: str) -> frozenset[ProviderUuid]:
        """The nodes whose journal is not empty, but for those that are recorded as
        another host's.
        """

    def save_journal(self, root: ProviderUuid, journal: Journal) -> Journal:
        """Keep a journal. Returns it as it is kept, with its new version.

        :raises RecordConflict: another agent wrote it since it was read.
        """


LOG = logging.getLogger(__name__)

LEAST_VERSION = "1.30"
# How long what the server does not offer, or does not allow, is taken for so before it is asked
# again, in seconds.
ASK_AGAIN = 3600.0
Mode = Literal["http", "embedded"]


class Server:
    """Shared by all nodes of a process. ``storage`` None: nothing is kept, as in a dry run."""

    def __init__(
        self, transport: Transport, mode: Mode, storage: PlacementStorage, *, keep: bool = True
    ) -> None:
        self.transport, self.mode, self.storage, self.keep = transport, mode, storage, keep
        self._capabilities: ServerCapabilities | None = None
        # When this process last asked how much the server offers, and when it was last refused a
        # reshape, by a clock that never goes back.
        self._asked_at: float | None = None
        self._refused_at: float | None = None
        self._lock = threading.Lock()

    def client(self) -> PlacementClient:
        """A client for one cycle, with a global request id and a count of requests of its own."""
        return PlacementClient(self.transport.exchange(f"req-{uuid.uuid4()}"))

    @property
    def capabilities(self) -> ServerCapabilities | None:
        """What is known of the server; ``None`` before :meth:`connect`."""
        return self._capabilities

    def connect(self, client: PlacementClient, *, ask: bool = False) -> ServerCapabilities:
        """What the server offers: as saved, or asked for with one request. That it refused a
        reshape counts for an hour, and not after a start.

        :raises PlacementTooOld: it offers less than the agent needs.
        """
        endpoint = self.transport.endpoint
        with self._lock:
            known = self._capabilities or self.storage.capabilities(endpoint)
            if known is None or known.endpoint != endpoint or ask:
                known = ServerCapabilities(endpoint=endpoint, max_version=client.max_version())
                check_version(known)
                self._save(known)
                self._asked_at, self._refused_at = time.monotonic(), None
            if not known.can_reshape and _long_ago(self._refused_at):
                known = replace(known, can_reshape=True)
            self._capabilities = known
            return known

    def offers_more(self, client: PlacementClient) -> bool:
        """Ask again how much the server offers, if something is held back because of that; once
        after a start and then once an hour.

        Returns whether it is more than before.
        """
        with self._lock:
            known = self._capabilities
            if known is None or not _long_ago(self._asked_at):
                return False
            self._asked_at = time.monotonic()
            now = replace(known, max_version=client.max_version())
            if now == known:
                return False
            check_version(now)
            self._capabilities = now
            self._save(now)
            return True

    def learned(self, capabilities: ServerCapabilities) -> ServerCapabilities:
        """Keep what a cycle learned. Several nodes may learn at once, so only names are added."""
        with self._lock:
            known = self._capabilities or capabilities
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
                self._capabilities = merged
                self._save(merged)
            return merged

    def forget(self, capabilities: ServerCapabilities) -> None:
        """Put ``capabilities`` in place of what was known, because the server contradicted it."""
        with self._lock:
            self._capabilities = capabilities
            self._save(capabilities)

    def _save(self, capabilities: ServerCapabilities) -> None:
        if self.keep:
            self.storage.save_capabilities(capabilities)


def _long_ago(at: float | None) -> bool:
    return at is None or time.monotonic() - at >= ASK_AGAIN


def check_version(capabilities: ServerCapabilities) -> None:
    """Refuse a server that offers less than the agent needs.

    :raises PlacementTooOld: it does.
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
