"""The fleet in service: built from one configuration, started when it is first needed, closed when
its successor takes over.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import Protocol

from oslo_config import cfg

from agent.audit.fleet import Fleet
from agent.bootstrap.components import build_components
from agent.bootstrap.fleet import start_fleet
from agent.conf.default import host_name
from agent.driver.interface import CountsHangingCalls
from agent.driver.worker import Outcome
from agent.errors import AgentError
from agent.monitors.poll import Monitors
from agent.store.store import Store

LOG = logging.getLogger(__name__)

# Seconds between renewals of the leases: no lease is shorter than 30.
KEEP_EVERY = 5.0


class CallObserver(Protocol):
    """Counts requests to Placement and calls of the driver. Called from many threads."""

    def count_request(self, method: str, status: int | None, seconds: float) -> None:
        """Take the end of a request to Placement; ``status`` is None if there was no answer."""

    def count_call(self, call: str, outcome: Outcome, seconds: float) -> None:
        """Take the end of a driver call: it returned, or was given up."""


class Runtime:
    """The components and the fleet of ``conf``. Constructing it touches nothing outside the
    process.

    ``changed``: called with each node that has changed, see :func:`start_fleet`.

    :raises ConfigErrors: everything that is wrong with ``conf``.
    :raises DriverError: its driver failed to check the configuration.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        cancelled: Event,
        changed: Callable[[str], None],
        observer: CallObserver,
    ) -> None:
        self.conf = conf
        self._components = build_components(conf, cancelled, daemon=True)
        self._cancelled = cancelled
        self._changed, self._observer = changed, observer
        self._components.worker.observe = observer.count_call
        self._fleet: Fleet | None = None
        self._closing = ExitStack()

    @property
    def hanging(self) -> int:
        """How many driver calls were given up and have not returned."""
        driver = self._components.driver
        return self._components.worker.stuck + (
            driver.hanging if isinstance(driver, CountsHangingCalls) else 0
        )

    @property
    def monitors(self) -> Monitors:
        """The monitors, which measure the host."""
        return self._components.monitors

    def start(self, store: Store) -> Fleet:
        """Return the fleet, started if it was not.

        :raises AgentError: it cannot be started; the next call tries again.
        """
        if self._fleet is None:
            self._fleet = self._closing.enter_context(
                start_fleet(
                    self.conf,
                    self._components,
                    store,
                    self._cancelled,
                    daemon=True,
                    changed=self._changed,
                )
            )
            self._fleet.context.server.transport.observe = self._observer.count_request
        return self._fleet

    @contextmanager
    def keep_leases(self) -> Iterator[None]:
        """Renew the leases of the fleet, if it was started, while the block runs."""
        fleet, done = self._fleet, Event()

        def keep(fleet: Fleet) -> None:
            while not done.wait(KEEP_EVERY):
                try:
                    fleet.leases.renew()
                except AgentError as error:
                    LOG.debug("leases were not renewed: %s", error)
                except Exception:
                    # The next renewal may succeed.
                    LOG.exception("leases were not renewed")

        keeper = (
            Thread(target=keep, args=[fleet], name="leases", daemon=True)
            if fleet is not None
            else None
        )
        if keeper is not None:
            keeper.start()
        try:
            yield
        finally:
            done.set()
            if keeper is not None:
                keeper.join()

    def close(self, successor: "Runtime | None" = None) -> None:
        """Stop the driver, if it was started. ``successor``: the runtime that takes over, leases
        included.
        """
        fleet, self._fleet = self._fleet, None
        try:
            if (
                fleet is not None
                and successor is not None
                and host_name(successor.conf) == host_name(self.conf)
            ):
                follower = successor._fleet
                fleet.leases.hand_over(follower.leases if follower is not None else None)
        finally:
            self._closing.close()
