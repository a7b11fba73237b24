"""Builds the API client from the options of [ironic]. Sends nothing."""

from oslo_config import cfg

from agent.conf.ironic import GROUP
from agent.http.session import service_adapter
from drivers.ironic.api import Api


def connected(conf: cfg.ConfigOpts) -> Api:
    """Return the API of the ironic that [ironic] describes.

    :raises ConfigErrors: everything that is wrong with the authentication plugin, its options and
        the certificates.
    """
    return Api(service_adapter(conf, GROUP))
