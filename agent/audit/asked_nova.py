"""What nova's API tells of the allocations of a node, asked for only if there is something to
explain.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from agent.http.nova_api import NovaApi, NovaNotAsked
from agent.model.names import ConsumerUuid
from agent.model.nova_answers import NovaAnswers
from agent.model.report import Drift, DriftKind
from agent.placement import clock
from agent.tracker.nova_explanations import NovaExplanations, asked_about
from agent.tracker.observed_share import ObservedShare

# Seconds after which nova is asked again if holders are never read again.
_REFRESH = 600.0


@dataclass(slots=True)
class AskedNova:
    """The answers of nova for one node. Kept for the life of the process: the same drift is asked
    about again only after ``refresh`` seconds, and after an error nothing is asked before.
    """

    api: NovaApi | None
    """None: nova is not to be asked."""
    host: str
    refresh: float
    """Seconds."""
    _about: frozenset[tuple[DriftKind, ConsumerUuid]] = frozenset()
    _asked_at: float = 0.0
    _answers: NovaAnswers = field(default_factory=NovaAnswers)
    _error: NovaNotAsked | None = None

    def explained(self, drift: Sequence[Drift], share: ObservedShare) -> tuple[Drift, ...]:
        """Return the drift with what nova tells of it; if nova gives no answer, with a warning that
        says so.
        """
        about = asked_about(drift)
        if self.api is None or not about:
            return tuple(drift)
        fresh = clock.now() - self._asked_at < (self.refresh or _REFRESH)
        asks = not fresh or (self._error is None and not about <= self._about)
        if asks:
            self._ask(self.api, about, share.guests.keys())
        explanations = NovaExplanations(self._answers, share, self.host, current=asks)
        found = tuple(explanations.of(drift))
        if self._error is None:
            return found
        what = (
            f"nova was not asked: {self._error.message}; what is told rests on the hypervisor alone"
        )
        return (*found, Drift("nova-not-asked", "warning", what, self._error.remedy))

    def _ask(
        self,
        api: NovaApi,
        about: frozenset[tuple[DriftKind, ConsumerUuid]],
        guests: Collection[ConsumerUuid],
    ) -> None:
        self._about, self._answers, self._error = about, NovaAnswers(), None
        try:
            consumers = {consumer for _, consumer in about}
            self._answers = api.answers(self.host, consumers, guests)
        except NovaNotAsked as error:
            self._error = error
        # After the answer, because a nova that hangs would be asked again at once.
        self._asked_at = clock.now()
