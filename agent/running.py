"""A fleet in service: built on one configuration, started when it is first needed, closed when another takes its place."""

from collections.abc import Callable
from contextlib import ExitStack
from threading import Event

from oslo_config import cfg

from agent.assembly import made, started
from agent.driver import CountsHangingCalls
from agent.fleet import Fleet
from agent.monitors.poll import Monitors
from agent.store.store import Store


class Running:
    """The fleet of ``conf``. Making it touches nothing. ``changed``: called with each node of which something has, see :func:`started`.

    :raises ConfigErrors: everything that is wrong with ``conf``.
    :raises DriverError: its driver failed to say.
    """

    def __init__(self, conf: cfg.ConfigOpts, cancelled: Event, changed: Callable[[str], None]) -> None:
        self.conf = conf
        self._parts, self._cancelled = made(conf, cancelled, daemon=True), cancelled
        self._changed = changed
        self._fleet: Fleet | None = None
        self._closing = ExitStack()

    @property
    def hanging(self) -> int:
        """How many driver calls were given up and have not come back."""
        driver = self._parts.driver
        return self._parts.worker.stuck + (driver.hanging if isinstance(driver, CountsHangingCalls) else 0)

    @property
    def monitors(self) -> Monitors:
        """What measures the host."""
        return self._parts.monitors

    def start(self, store: Store) -> Fleet:
        """The fleet, ready to be audited.

        :raises AgentError: it cannot be started; the next call tries again.
        """
        if self._fleet is None:
            self._fleet = self._closing.enter_context(started(self.conf, self._parts, store, self._cancelled, daemon=True, changed=self._changed))
        return self._fleet

    def close(self) -> None:
        """Stop the driver, if it was started."""
        self._fleet = None
        self._closing.close()
