"""From the options of [placement] to a transport."""

import threading

from oslo_config import cfg

from agent.conf.placement import GROUP
from agent.errors import ConfigError
from agent.http.bounded import MIB
from agent.http.session import service_adapter
from agent.placement.transport import Timeouts, Transport


def wants_embedded(conf: cfg.ConfigOpts, *, daemon: bool) -> bool:
    """Whether the embedded Placement is to be used: asked for, or with no credentials and no
    daemon.

    :raises ConfigError: a daemon without credentials.
    """
    backend = conf.placement.backend
    if backend != "auto":
        return bool(backend == "embedded")
    configured = bool(
        conf.placement.auth_type or conf.placement.auth_section or conf.placement.endpoint_override
    )
    if not configured and daemon:
        raise ConfigError(
            "no credentials in section [placement]",
            "set auth_type and its options, as in nova.conf, or backend = embedded",
        )
    return not configured


def http(conf: cfg.ConfigOpts, cancelled: threading.Event) -> Transport:
    """A transport to the Placement that [placement] describes. Sends nothing.

    :raises ConfigErrors: everything that is wrong with the authentication plugin, its options and
        the certificates.
    """
    options = conf.placement
    timeouts = Timeouts(options.connect_timeout, options.read_timeout, options.reshape_timeout)
    adapter = service_adapter(conf, GROUP, options.max_answer * MIB)
    # Identity is asked through the same session; without a bound, a hanging one would block for
    # ever.
    adapter.session.timeout = adapter.session.timeout or timeouts.read
    return Transport(
        adapter, timeouts=timeouts, max_in_flight=options.max_in_flight, cancelled=cancelled
    )
