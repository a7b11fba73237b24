"""What the mirror and the flush need of a store."""

from typing import Protocol

from agent.model.journal import Journal
from agent.model.mirror import ServerCapabilities, PlacementView
from agent.model.names import ProviderUuid


class PlacementStorage(Protocol):
    """Keeps the mirror and the ownership journal over restarts. Every save is one durable transaction."""

    def capabilities(self, endpoint: str) -> ServerCapabilities | None:
        """What is known of the server, ``None`` if it was never asked."""

    def save_capabilities(self, capabilities: ServerCapabilities) -> None:
        """Keep what is known of a server."""

    def view(self, endpoint: str, root: ProviderUuid) -> PlacementView | None:
        """The saved view of a node, ``None`` if there is none."""

    def save_view(self, endpoint: str, root: ProviderUuid, old: PlacementView | None, new: PlacementView) -> None:
        """Keep a view, writing only what differs from ``old``, which is what was saved before."""

    def journal(self, root: ProviderUuid) -> Journal:
        """The journal of a node, empty if there is none."""

    def roots(self, host: str) -> frozenset[ProviderUuid]:
        """The nodes whose journal is not empty, but for those that are recorded as another host's."""

    def save_journal(self, root: ProviderUuid, journal: Journal) -> Journal:
        """Keep a journal. Returns it as it is kept, with its new version.

        :raises RecordConflict: another agent wrote it since it was read.
        """
