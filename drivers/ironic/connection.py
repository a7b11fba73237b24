"""From the options of [ironic] to its API. Sends nothing."""

from keystoneauth1 import exceptions as ksa
from keystoneauth1 import loading
from oslo_config import cfg

from agent.conf.ironic import GROUP
from agent.errors import ConfigError
from drivers.ironic.api import Api

LIKE_NOVA = "compare with the [ironic] section of a working nova.conf"


def connected(conf: cfg.ConfigOpts) -> Api:
    """The API of the ironic that [ironic] describes.

    :raises ConfigError: an authentication plugin or option that cannot be used.
    """
    try:
        auth = loading.load_auth_from_conf_options(conf, GROUP)
        session = loading.load_session_from_conf_options(conf, GROUP, auth=auth)
        adapter = loading.load_adapter_from_conf_options(conf, GROUP, session=session, auth=auth)
    except (ksa.ClientException, cfg.Error, OSError, ValueError, TypeError) as error:
        raise ConfigError(f"section [{GROUP}]: {error}", LIKE_NOVA) from error
    if auth is None:
        raise ConfigError(f"no credentials in section [{GROUP}]", "set auth_type and its options, as in nova.conf; auth_type = none if ironic asks for none")
    return Api(adapter)
