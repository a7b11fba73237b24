"""Every option of the configuration that a command line may set: the agent's, the log's, and those of keystoneauth."""

from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points

from keystoneauth1 import loading
from oslo_config import cfg

from agent.conf import options

WITH_KEYSTONEAUTH = tuple(service.GROUP for service in options.SERVICES)

OptionsByGroup = list[tuple[str | None, list[cfg.Opt]]]


def catalogue() -> OptionsByGroup:
    """The options that can be known without a configuration, by group; None, like DEFAULT, is [DEFAULT]."""
    return [*log_options(), *options.by_group(), *options.of_keystoneauth()]


@cache
def log_options() -> OptionsByGroup:
    """The options of oslo.log, from where it publishes them."""
    (published,) = entry_points(group="oslo.config.opts", name="oslo.log")
    found: OptionsByGroup = published.load()()
    return found


def plugin_options(known: Iterable[cfg.Opt]) -> list[cfg.Opt]:
    """The options of all installed authentication plugins that are not among ``known``.

    Which of them mean something is only known once ``auth_type`` is. Loading all plugins takes a while.
    """
    seen = {option.dest for option in known}
    found: dict[str, cfg.Opt] = {}
    for name in loading.get_available_plugin_names():
        found |= {option.dest: option for option in loading.get_auth_plugin_conf_options(name) if option.dest not in seen}
    return list(found.values())
