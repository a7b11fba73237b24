"""The values of options: where each is set, and which values cannot be used."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg, types

from agent.cli.config_files import ConfigFile
from agent.cli.options import Override
from agent.conf import options
from agent.errors import ConfigError
from agent.model.names import printable

WITH_KEYSTONEAUTH = tuple(service.GROUP for service in options.SERVICES)

OptionsByGroup = list[tuple[str | None, list[cfg.Opt]]]


def catalogue() -> OptionsByGroup:
    """Return the options that are known without a configuration, by group; None is [DEFAULT]."""
    return [*log_options(), *options.by_group(), *options.keystoneauth_options()]


@cache
def log_options() -> OptionsByGroup:
    """Return the options of oslo.log, from the entry point where it publishes them."""
    (published,) = entry_points(group="oslo.config.opts", name="oslo.log")
    found: OptionsByGroup = published.load()()
    return found


def plugin_options(known: Iterable[cfg.Opt]) -> list[cfg.Opt]:
    """Return the options of all installed authentication plugins that are not among ``known``.

    Which of them apply is known only with ``auth_type``. Loading all plugins takes a while.
    """
    seen = {option.dest for option in known}
    found: dict[str, cfg.Opt] = {}
    for name in loading.get_available_plugin_names():
        found |= {
            option.dest: option
            for option in loading.get_auth_plugin_conf_options(name)
            if option.dest not in seen
        }
    return list(found.values())


COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True)
class OptionOrigin:
    """The place where an option is set, and the text of its value there."""

    place: str
    text: str


def reset_unusable_values(
    conf: cfg.ConfigOpts,
    known: OptionsByGroup,
    files: Sequence[ConfigFile],
    environ: Mapping[str, str],
) -> Iterator[ConfigError]:
    """Yield an error for every option whose value cannot be used. From then on, the option has its
    default.
    """
    by_name = {(group, option.dest): option for group, options in known for option in options}
    for (group, name), option in by_name.items():
        if not is_registered(conf, group, name):
            continue
        try:
            _ = conf[group][name] if group else conf[name]
        except (ValueError, cfg.Error) as error:
            found = origin(option, group, files, environ)
            # An option that is not set has a default made of another option, which is reported
            # itself.
            if found is not None:
                yield unusable_value(option, group, found, error)
            # A default made of another option cannot be used either if that option cannot.
            with suppress(ValueError, cfg.Error):
                conf.set_override(name, option.default, group)


def is_registered(conf: cfg.ConfigOpts, group: str | None, name: str) -> bool:
    """Return whether ``conf`` has the option. Options of authentication plugins that were not
    chosen are not registered.
    """
    return name in (conf[group] if group else conf)


def override_problems(
    conf: cfg.ConfigOpts, known: OptionsByGroup, overrides: Iterable[Override]
) -> Iterator[ConfigError]:
    """Apply the values of the command line; yield an error for each that the option cannot take."""
    for override in overrides:
        try:
            conf.set_override(override.name, override.value, override.group)
        except ValueError as error:
            option = next(
                option
                for group, options in known
                if group == override.group
                for option in options
                if option.dest == override.name
            )
            yield unusable_value(
                option, override.group, OptionOrigin(COMMAND_LINE, str(override.value)), error
            )
        except cfg.NoSuchOptError:
            yield ConfigError(
                (
                    f"{COMMAND_LINE}: [{override.group or 'DEFAULT'}] {override.name} is no option "
                    "of this configuration"
                ),
                "set auth_type to an authentication plugin that has it",
            )


def unusable_value(
    option: cfg.Opt, group: str | None, found: OptionOrigin, error: Exception
) -> ConfigError:
    """Return the error for an unusable value, with its place and what the option can be."""
    section, wanted = group or "DEFAULT", _allowed_values(option)
    text = (
        f"{found.place}: [{section}] {option.dest} = "
        f"{'<secret>' if option.secret else printable(found.text)}"
    )
    if "$" in found.text:
        reason, remedy = (
            "what $ refers to is not set here or does not fit",
            "write $$ for a dollar sign, or name an option of the agent",
        )
    elif wanted:
        reason, remedy = f"not {wanted}", f"give {wanted}, or remove it"
    else:
        # The message of the type may repeat the value.
        reason, remedy = (
            "it cannot be used" if option.secret else printable(str(error.__context__ or error)),
            "correct or remove it",
        )
    return ConfigError(f"{text}: {reason}", remedy, group=section, option=option.dest)


def origin(
    option: cfg.Opt,
    group: str | None,
    files: Sequence[ConfigFile],
    environ: Mapping[str, str],
    number: int | None = None,
) -> OptionOrigin | None:
    """Return where environment or files set an option; None if they do not.

    ``number``: which value is meant of an option that is given several times, from 1.
    """
    section = group or "DEFAULT"
    variable = f"OS_{section.upper()}__{option.dest.upper()}"
    if variable in environ:
        return OptionOrigin(f"environment variable {variable}", environ[variable])
    names = [
        (section, option.dest),
        *(
            (old.group or section, (old.name or option.dest).replace("-", "_"))
            for old in option.deprecated_opts
        ),
    ]
    found = [
        OptionOrigin(f"{file.path}:{value.line}", value.text)
        for file in files
        for wanted, name in reversed(names)
        for value in file.sections.get(wanted if wanted == "DEFAULT" else wanted.lower(), {}).get(
            name, ()
        )
    ]
    if number is not None and number <= len(found):
        return found[number - 1]
    return found[-1] if found else None


def _allowed_values(option: cfg.Opt) -> str:
    """Return in words what the option can be; empty if its type does not say enough."""
    kind: Any = option.type
    if isinstance(kind, types.Boolean):
        return "true or false"
    if isinstance(kind, types.Number):
        noun = "a whole number" if isinstance(kind, types.Integer) else "a number"
        if kind.min is not None and kind.max is not None:
            return f"{noun} from {kind.min} to {kind.max}"
        return f"{noun} of at least {kind.min}" if kind.min is not None else noun
    choices = getattr(kind, "choices", None)
    return f"one of {', '.join(choices)}" if choices else ""
