"""The loading of the monitors that the operator wants."""

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from oslo_config import cfg

from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable
from agent.monitors.monitor import NAMESPACE, Monitor

REMEDY = "leave it out, or install what it needs"


def load_monitors(conf: cfg.ConfigOpts) -> Mapping[str, Monitor]:
    """The monitors that ``[compute] monitors`` names, by name.

    :raises ConfigErrors: everything that is wrong with them.
    """
    installed = {entry.name: entry for entry in entry_points(group=NAMESPACE)}
    monitors: dict[str, Monitor] = {}
    errors: list[ConfigError] = []
    for name in conf.compute.monitors:
        try:
            monitors[name] = _made(name, installed)
        except ConfigError as error:
            errors.append(error)
    errors += _rivals(conf.compute.monitors, monitors)
    if errors:
        raise ConfigErrors(errors)
    return monitors


def _made(name: str, installed: Mapping[str, EntryPoint]) -> Monitor:
    option = f"[compute] monitors: {printable(name)}"
    if name not in installed:
        raise ConfigError(f"{option}: no such monitor", f"installed: {', '.join(sorted(installed)) or 'none'}")
    try:
        monitor = installed[name].load()()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{option}: it cannot be made: {type(error).__name__}: {printable(str(error))}", REMEDY) from error
    if not isinstance(monitor, Monitor):
        raise ConfigError(f"{option}: it is no monitor, because it lacks type, unsupported or metrics", "report this to whoever wrote it")
    return monitor


def _rivals(names: list[str], monitors: Mapping[str, Monitor]) -> Iterator[ConfigError]:
    first: dict[str, str] = {}
    for name in names:
        if name not in monitors:
            continue
        measured = monitors[name].type
        if measured in first:
            what = f"[compute] monitors: {printable(first[measured])} and {printable(name)} both measure {printable(measured)}"
            yield ConfigError(what, "leave one of the two out")
        first.setdefault(measured, name)
