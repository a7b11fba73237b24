"""[nova]: where nova's API is, as keystoneauth's options."""

from oslo_config import cfg

GROUP = "nova"

# It is asked for no more than what an audit tells besides, so that an audit does not wait long.
DEFAULTS = {
    "service_type": "compute",
    "valid_interfaces": ["internal", "public"],
    "timeout": 10,
    "connect_retries": 0,
    "status_code_retries": 0,
}

OPTIONS: list[cfg.Opt] = []


def is_asked(conf: cfg.ConfigOpts) -> bool:
    """Return whether the section has credentials."""
    return bool(conf.nova.auth_type or conf.nova.auth_section)
