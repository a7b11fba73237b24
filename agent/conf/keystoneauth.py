"""The options of keystoneauth's session, adapter and authentication plugins, for a section of the
agent's configuration.
"""

from collections.abc import Mapping
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

Defaults = Mapping[str, Any]
"""Defaults that differ from keystoneauth's."""


def register(conf: cfg.ConfigOpts, group: str, defaults: Defaults) -> None:
    """Register the options in ``group``."""
    loading.register_session_conf_options(conf, group)
    loading.register_adapter_conf_options(conf, group, include_deprecated=False)
    loading.register_auth_conf_options(conf, group)
    for name, default in defaults.items():
        conf.set_default(name, default, group)


def options(defaults: Defaults) -> list[cfg.Opt]:
    """Return the same options."""
    adapter, session = (
        loading.get_adapter_conf_options(include_deprecated=False),
        loading.get_session_conf_options(),
    )
    cfg.set_defaults([*adapter, *session], **defaults)
    return [
        *session,
        *adapter,
        *loading.get_auth_common_conf_options(),
    ]


def password_options() -> list[cfg.Opt]:
    """Return the options of the password plugin, for the sample file and the reference."""
    found: list[cfg.Opt] = loading.get_auth_plugin_conf_options("password")
    return found
