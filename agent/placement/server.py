"""One Placement server as a process knows it: the transport, what the server offers, and where that is kept."""

import logging
import threading
import uuid
from dataclasses import replace
from typing import Literal

from agent.errors import PlacementTooOld
from agent.model.mirror import Knowledge
from agent.placement.client import Client
from agent.placement.storage import Storage
from agent.placement.transport import Transport

LOG = logging.getLogger(__name__)

LEAST_VERSION = "1.30"
Mode = Literal["http", "embedded"]


class Server:
    """Shared by all nodes of a process. ``storage`` None: nothing is kept, as in a dry run."""

    def __init__(self, transport: Transport, mode: Mode, storage: Storage, *, keep: bool = True) -> None:
        self.transport, self.mode, self.storage, self.keep = transport, mode, storage, keep
        self._knowledge: Knowledge | None = None
        self._lock = threading.Lock()

    def client(self) -> Client:
        """A client for one cycle, with a global request id and a count of requests of its own."""
        return Client(self.transport.exchange(f"req-{uuid.uuid4()}"))

    @property
    def knowledge(self) -> Knowledge | None:
        """What is known of the server; ``None`` before :meth:`connect`."""
        return self._knowledge

    def connect(self, client: Client, *, ask: bool = False) -> Knowledge:
        """What the server offers: as saved, or asked for with one request.

        :raises PlacementTooOld: it offers less than the agent needs.
        """
        endpoint = self.transport.endpoint
        with self._lock:
            known = self._knowledge or self.storage.knowledge(endpoint)
            if known is None or known.endpoint != endpoint or ask:
                known = Knowledge(endpoint=endpoint, max_version=client.max_version())
                check_version(known)
                self._save(known)
            self._knowledge = known
            return known

    def learned(self, knowledge: Knowledge) -> Knowledge:
        """Keep what a cycle learned. Several nodes may learn at once, so only names are added."""
        with self._lock:
            known = self._knowledge or knowledge
            traits, classes = known.traits | knowledge.traits, known.classes | knowledge.classes
            merged = replace(knowledge, traits=traits, classes=classes, can_reshape=known.can_reshape and knowledge.can_reshape)
            if merged != known:
                self._knowledge = merged
                self._save(merged)
            return merged

    def forget(self, knowledge: Knowledge) -> None:
        """Put ``knowledge`` in place of what was known, because the server contradicted it."""
        with self._lock:
            self._knowledge = knowledge
            self._save(knowledge)

    def _save(self, knowledge: Knowledge) -> None:
        if self.keep:
            self.storage.save_knowledge(knowledge)


def check_version(knowledge: Knowledge) -> None:
    """Refuse a server that offers less than the agent needs.

    :raises PlacementTooOld: it does.
    """
    if not knowledge.offers(LEAST_VERSION):
        raise PlacementTooOld(
            f"needs placement {LEAST_VERSION}, server offers {knowledge.max_version} ({knowledge.endpoint})", "upgrade Placement to OpenStack Rocky or later"
        )
    LOG.info("placement at %s offers %s", knowledge.endpoint, knowledge.max_version)
