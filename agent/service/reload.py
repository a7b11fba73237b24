"""Replaces the runtime at a reload; a configuration that cannot be used changes nothing."""

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Event

from oslo_config import cfg

from agent.api.access import Access
from agent.errors import ConfigError, DriverTimeout, NotReady
from agent.service.optional_api import OptionalApi
from agent.service.runtime import Runtime
from agent.service.schedule import DirtyNodes
from agent.store.store import Store

LOG = logging.getLogger(__name__)

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
        api: OptionalApi,
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
            runtime = Runtime(conf, self._stopping, self._dirty_nodes.add, self._api)
            usable = True
        finally:
            self._warn(conf, usable)
        return runtime

    def replace(self, before: Runtime, conf: cfg.ConfigOpts, store: Store) -> Runtime:
        """Return a runtime on ``conf``; the one before is closed only once this one is ready.

        :raises AgentError: ``conf`` cannot be used; nothing has changed.
        """
        # Starting a driver may take longer than a lease lasts.
        with before.keep_leases():
            _check_fixed_options(before.conf, conf)
            runtime = self.build(conf)
            try:
                access = Access.from_options(conf)
                # An unavailable backend does not make the configuration wrong; the next audit tries
                # again, and reports it.
                with suppress(NotReady, DriverTimeout):
                    runtime.start(store)
                self._replace_log(before.conf, conf)
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


def _check_fixed_options(before: cfg.ConfigOpts, conf: cfg.ConfigOpts) -> None:
    """Check that no option has changed that needs a restart.

    :raises ConfigError: one has.
    """
    changed = [
        f"[{group}] {option}"
        for group, option in FIXED_OPTIONS
        if before[group][option] != conf[group][option]
    ]
    if changed:
        raise ConfigError(
            f"{', '.join(changed)}: changed, and in use for as long as the agent runs",
            "restart the agent to apply the change, or undo it",
        )
