"""The fleet in service: built from one configuration, started when it is first needed, replaced at
a reload, closed when its successor takes over. A configuration that cannot be used changes nothing.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, Thread

from oslo_config import cfg

from agent.api.access import Access
from agent.api.local_api import LocalApi
from agent.api.metrics import Metrics
from agent.audit.fleet import Fleet
from agent.bootstrap.components import build_components
from agent.bootstrap.fleet import start_fleet
from agent.conf.default import host_name, only_observes
from agent.driver.interface import CountsHangingCalls
from agent.errors import AgentError, ConfigError, DriverTimeout, NotReady
from agent.monitors import Monitors
from agent.service.audit_queue import DirtyNodes
from agent.service.log_writer import WRITER
from agent.store.store import Store

LOG = logging.getLogger(__name__)

# Seconds between renewals of the leases: no lease is shorter than 30.
KEEP_EVERY = 5.0


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
        metrics: Metrics,
    ) -> None:
        self.conf = conf
        self._components = build_components(conf, cancelled, daemon=True)
        self._cancelled = cancelled
        self._changed, self._metrics = changed, metrics
        self._components.worker.observe = metrics.count_call
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
            self._fleet.context.server.transport.observe = self._metrics.count_request
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
        included. If that one only observes, nothing that still has this fleet writes from now on.
        """
        fleet, self._fleet = self._fleet, None
        if fleet is not None and successor is not None and only_observes(successor.conf):
            # The API uses this fleet until the nodes were audited with the other one.
            fleet.context.server.transport.read_only = True
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


# Options that only a restart can change: store and sockets stay open for the life of the process.
FIXED_OPTIONS = (
    ("store", "path"),
    ("store", "connection"),
    ("api", "socket"),
    ("api", "group"),
    ("api", "metrics_address"),
)

SetUpLog = Callable[[cfg.ConfigOpts], None]
Warn = Callable[[cfg.ConfigOpts, bool], None]


class RuntimeBuilder:
    """Builds the first runtime of the daemon, and those that replace it.

    ``set_up_log`` sets up logging as a configuration says; ``warn`` logs options that may be
    mistakes, and takes whether the configuration could be used.
    """

    def __init__(
        self,
        set_up_log: SetUpLog,
        warn: Warn,
        stopping: Event,
        dirty_nodes: DirtyNodes,
        api: LocalApi,
    ) -> None:
        self._set_up_log, self._warn = set_up_log, warn
        self._stopping, self._dirty_nodes, self._api = stopping, dirty_nodes, api

    def build(self, conf: cfg.ConfigOpts) -> Runtime:
        """Return a runtime on ``conf``. Options that nothing reads are logged afterwards, because a
        driver has options of its own; also when the configuration cannot be used.

        :raises ConfigErrors, DriverError: ``conf`` cannot be used.
        """
        usable = False
        try:
            runtime = Runtime(conf, self._stopping, self._dirty_nodes.add, self._api.metrics)
            usable = True
        finally:
            self._warn(conf, usable)
        return runtime

    def rebuild(self, before: Runtime, conf: cfg.ConfigOpts) -> Runtime:
        """Return a runtime on ``conf`` that may replace the one ``before``.

        :raises ConfigErrors, DriverError: ``conf`` cannot be used.
        """
        changed = [
            f"[{group}] {option}"
            for group, option in FIXED_OPTIONS
            if before.conf[group][option] != conf[group][option]
        ]
        if changed:
            raise ConfigError(
                f"{', '.join(changed)}: changed, and in use for as long as the agent runs",
                "restart the agent to apply the change, or undo it",
            )
        return self.build(conf)

    def replace(self, before: Runtime, runtime: Runtime, store: Store) -> Runtime:
        """Put ``runtime`` in the place of the one ``before``, which is closed only once the new one
        is ready; return it.

        :raises AgentError: ``runtime`` cannot be used and is closed; nothing has changed.
        """
        try:
            access = Access.from_options(runtime.conf)
            # An unavailable backend does not make the configuration wrong; the next audit tries
            # again, and reports it.
            with suppress(NotReady, DriverTimeout):
                runtime.start(store)
            self._replace_log(before.conf, runtime.conf)
        except BaseException:
            runtime.close()
            raise
        self._api.allow(access)
        try:
            before.close(runtime)
        except Exception:
            # From here on the new runtime is the one in use.
            LOG.exception("closing the components of the old configuration")
        return runtime

    def _replace_log(self, before: cfg.ConfigOpts, conf: cfg.ConfigOpts) -> None:
        try:
            self._set_up_log(conf)
        except BaseException:
            self._set_up_log(before)
            raise
        finally:
            WRITER.take_over()
