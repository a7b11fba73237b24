"""From the options of [placement] to a transport."""

import threading

from keystoneauth1 import exceptions as ksa
from keystoneauth1 import loading
from oslo_config import cfg

from agent.errors import ConfigError
from agent.placement.transport import Timeouts, Transport


def wants_embedded(conf: cfg.ConfigOpts, *, daemon: bool) -> bool:
    """Whether the embedded Placement is to be used: asked for, or with no credentials and no daemon.

    :raises ConfigError: a daemon without credentials.
    """
    backend = conf.placement.backend
    if backend != "auto":
        return bool(backend == "embedded")
    configured = bool(conf.placement.auth_type or conf.placement.auth_section or conf.placement.endpoint_override)
    if not configured and daemon:
        raise ConfigError("no credentials in section [placement]", "set auth_type and its options, as in nova.conf, or backend = embedded")
    return not configured


def http(conf: cfg.ConfigOpts, cancelled: threading.Event) -> Transport:
    """A transport to the Placement that [placement] describes. Sends nothing.

    :raises ConfigError: an authentication plugin or option that cannot be used.
    """
    options = conf.placement
    timeouts = Timeouts(options.connect_timeout, options.read_timeout, options.reshape_timeout)
    try:
        auth = loading.load_auth_from_conf_options(conf, "placement")
        session = loading.load_session_from_conf_options(conf, "placement", auth=auth)
        adapter = loading.load_adapter_from_conf_options(conf, "placement", session=session, auth=auth)
    except (ksa.ClientException, cfg.Error, OSError, ValueError, TypeError) as error:
        raise ConfigError(f"section [placement]: {error}", "compare with the [placement] section of a working nova.conf") from error
    if auth is None:
        raise ConfigError("no credentials in section [placement]", "set auth_type and its options, as in nova.conf")
    if getattr(auth, "auth_url", None) == "":
        raise ConfigError("[placement] auth_url is empty", "give the URL of the identity service, as in nova.conf")
    # Identity is asked through the same session; without a bound, a hanging one would block for ever.
    session.timeout = session.timeout or timeouts.read
    return Transport(adapter, timeouts=timeouts, max_in_flight=options.max_in_flight, cancelled=cancelled)
