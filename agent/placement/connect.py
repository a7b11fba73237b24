"""Building the transport to Placement from the options of [placement]."""

import threading

from oslo_config import cfg

from agent.conf.placement import GROUP
from agent.errors import ConfigError
from agent.http.bounded import MIB
from agent.http.session import service_adapter
from agent.placement.transport import Timeouts, Transport


def uses_embedded(conf: cfg.ConfigOpts, *, daemon: bool) -> bool:
    """Return whether the embedded Placement is to be used: if configured, or outside of a daemon
    if there are no credentials.

    :raises ConfigError: a daemon has no credentials.
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


def connect_http(conf: cfg.ConfigOpts, cancelled: threading.Event) -> Transport:
    """Return a transport to the Placement that [placement] describes. Nothing is sent.

    :raises ConfigErrors: the authentication plugin, its options or the certificates are wrong; all
        errors are listed.
    """
    options = conf.placement
    timeouts = Timeouts(options.connect_timeout, options.read_timeout, options.reshape_timeout)
    adapter = service_adapter(conf, GROUP, options.max_answer * MIB)
    # The identity service is asked through the same session; without a timeout a hanging one would
    # block for ever.
    adapter.session.timeout = adapter.session.timeout or timeouts.read
    return Transport(
        adapter, timeouts=timeouts, max_in_flight=options.max_in_flight, cancelled=cancelled
    )
