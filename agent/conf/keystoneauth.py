"""The options of keystoneauth's session, adapter and authentication plugins, in a
section of ours.
"""

from collections.abc import Mapping
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

Defaults = Mapping[str, Any]
"""What the agent has otherwise than keystoneauth."""


def register(conf: cfg.ConfigOpts, group: str, defaults: Defaults) -> None:
    """Register them in ``group``."""
    loading.register_session_conf_options(conf, group)
    loading.register_adapter_conf_options(conf, group, include_deprecated=False)
    loading.register_auth_conf_options(conf, group)
    for name, default in defaults.items():
        conf.set_default(name, default, group)


def shown(defaults: Defaults) -> list[cfg.Opt]:
    """The same options for the sample file and the reference, with those of the password plugin."""
    adapter, session = (
        loading.get_adapter_conf_options(include_deprecated=False),
        loading.get_session_conf_options(),
    )
    cfg.set_defaults([*adapter, *session], **defaults)
    return [
        *session,
        *adapter,
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options("password"),
    ]
