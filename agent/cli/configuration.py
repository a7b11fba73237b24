"""The configuration of a run: made from files, environment and command line, with all errors at
once; where each value is set, and which values cannot be used.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from typing import Any

from oslo_config import cfg, types

from agent.cli.command import Options, Override
from agent.cli.config_files import PROGRAM, PROJECT, ConfigFile, Value, read_all, sources_of
from agent.conf import devices
from agent.conf import options as agent_options
from agent.errors import AgentError, ConfigError, ConfigErrors, gathering
from agent.model.names import printable

WITH_KEYSTONEAUTH = tuple(agent_options.SERVICES)

OptionsByGroup = list[tuple[str | None, list[cfg.Opt]]]


def catalogue(*, local: bool = False) -> OptionsByGroup:
    """Return the options that are known without a configuration, by group; None is [DEFAULT]. With
    ``local``, those of the agent only.
    """
    own = agent_options.by_group()
    return own if local else [*log_options(), *own, *agent_options.keystoneauth_options()]


@cache
def log_options() -> OptionsByGroup:
    """Return the options of oslo.log, from the entry point where it publishes them."""
    # Of one distribution, because a search of all takes long.
    published, *_ = distribution("oslo.log").entry_points.select(group="oslo.config.opts")
    found: OptionsByGroup = published.load()()
    return found


def plugin_options(known: Iterable[cfg.Opt]) -> list[cfg.Opt]:
    """Return the options of all installed authentication plugins that are not among ``known``.

    Which of them apply is known only with ``auth_type``. Loading all plugins takes a while.
    """
    # Imported here for the reason given in agent.conf.options.
    from keystoneauth1 import loading

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
            found = origin(conf, option, group, environ)
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
    conf: cfg.ConfigOpts,
    option: cfg.Opt,
    group: str | None,
    environ: Mapping[str, str],
    number: int | None = None,
) -> OptionOrigin | None:
    """Return where environment or files set an option; None if they do not.

    ``number``: which value is meant of an option that is given several times, from 1.
    """
    variable = f"OS_{(group or 'DEFAULT').upper()}__{option.dest.upper()}"
    if variable in environ:
        return OptionOrigin(f"environment variable {variable}", environ[variable])
    namespace = conf._namespace
    assert namespace is not None
    try:
        # Only this finds values under the deprecated names too.
        found, _ = option._get_from_namespace(namespace, group)
    except KeyError:
        return None
    values: Sequence[Value] = found if option.multi else [found]
    value = values[number - 1 if number is not None and number <= len(values) else -1]
    return OptionOrigin(f"{value.file}:{value.line}", value)


# The beginnings of messages that name the number of a value, and the option.
_NUMBER = re.compile(r"#(\d+)")
_ABOUT = re.compile(r"\[(?P<section>\w+)\] (?P<option>\w+)")
Row = Mapping[str, Any]
NOWHERE: Row = {"file": None, "line": None}


def place_of(error: AgentError, conf: cfg.ConfigOpts) -> Row:
    """Return the place that an error names, else where the option in its message is set."""
    data = error.data
    named = _ABOUT.search(error.message)
    section, option = (
        data.get("group") or (named and named["section"]),
        data.get("option") if "group" in data else (named and named["option"]),
    )
    place: Row = {"file": data.get("file"), "line": data.get("line")}
    if not data.get("file") and section and option:
        number = _NUMBER.match(str(data.get("place", "")))
        place = _place_of_option(conf, section, option, int(number[1]) if number else None)
    return {**place, "section": section, "option": option}


def _place_of_option(conf: cfg.ConfigOpts, section: str, option: str, number: int | None) -> Row:
    """Return the file and the line where an option is set; None for both if no file sets it."""
    group = None if section == "DEFAULT" else section
    for info, registered in conf._all_opt_infos():
        # The host's name is in a group of its own, called DEFAULT.
        if (
            info["opt"].dest == option
            and (registered.name if registered and registered.name != "DEFAULT" else None) == group
        ):
            found = origin(conf, info["opt"], group, os.environ, number)
            file, _, line = found.place.rpartition(":") if found else ("", "", "")
            return {"file": file, "line": int(line)} if line.isdecimal() else NOWHERE
    return NOWHERE


def place_text(row: Row) -> str:
    """Return the place as text for people; empty if the message contains it."""
    told = not row["line"] or printable(row["file"]) in row["message"]
    return "" if told else f"{row['file']}:{row['line']}"


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


class FileOptions(cfg.ConfigOpts):
    """The options of files that were read with their lines."""

    def __init__(self, files: Sequence[ConfigFile]) -> None:
        super().__init__()
        self.files = files

    @property
    def is_novas(self) -> bool:
        """Whether one of the files is nova's."""
        return any(file.is_novas for file in self.files)

    def _parse_config_files(self) -> cfg._Namespace:
        # In place of oslo.config's own, which forgets the lines and stops at the first error.
        namespace = cfg._Namespace(self)
        for file in self.files:
            sections: Any = file.sections
            namespace._add_parsed_config_file(str(file.path), sections, sections)
        return namespace


def files_of(conf: cfg.ConfigOpts) -> Sequence[ConfigFile]:
    """Return the files that a configuration was read from."""
    return conf.files if isinstance(conf, FileOptions) else ()


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration that was read, with its errors."""

    conf: cfg.ConfigOpts
    """The options; those with an unusable value have their defaults."""
    errors: Sequence[ConfigError]
    whole: bool
    """Whether every file is text."""


def load(
    options: Options, environ: Mapping[str, str] = os.environ, *, local: bool = False
) -> cfg.ConfigOpts:
    """Return the configuration. Each call reads everything again and returns a new object.

    The command line wins over environment variables (``OS_GROUP__OPTION``), these over files, later
    files over earlier ones. Unknown options are no error, so that a nova.conf can be given as it
    is. With ``local``, those of oslo.log and keystoneauth are unknown.

    :raises ConfigErrors: all errors of the configuration.
    """
    found = read_configuration(options, environ, local=local)
    ConfigErrors.raise_if_any(found.errors)
    return found.conf


def read_configuration(
    options: Options, environ: Mapping[str, str] = os.environ, *, local: bool = False
) -> Configuration:
    """Return the configuration as far as it can be used, and all its errors. ``local``: see
    :func:`load`.
    """
    files, errors = read_all(sources_of(options.sources))
    whole = all(any(error.data.get("file") == str(file.path) for file in files) for error in errors)
    conf, known = _parse_files(files, local=local), catalogue(local=local)
    now = [
        override
        for override in options.overrides
        if is_registered(conf, override.group, override.name)
    ]
    errors += override_problems(conf, known, now)
    # A list of networks or types that cannot be read is reported below, with its place.
    for register in (devices.register_physnets, devices.register_types):
        with suppress(ValueError, cfg.Error):
            known += register(conf)
    unknown_plugins: list[ConfigError] = []
    for service in () if local else WITH_KEYSTONEAUTH:
        with gathering(unknown_plugins):
            known += _plugin_options(conf, service, environ)
    errors += unknown_plugins
    if not (local or unknown_plugins):
        # Options of the plugins can be set only now that they are registered.
        errors += override_problems(
            conf, known, [override for override in options.overrides if override not in now]
        )
    errors += reset_unusable_values(conf, known, environ)
    return Configuration(conf, errors, whole)


def _parse_files(files: Sequence[ConfigFile], *, local: bool) -> cfg.ConfigOpts:
    conf = FileOptions(files)
    if not local:
        # Imported here for the reason given in agent.conf.options.
        from oslo_log import log

        log.register_options(conf)
        for group, options in log_options():
            # Registered again, for the reason given in agent.conf.options.
            conf.unregister_opts(options, group)
            conf.register_opts(options, group)
    agent_options.register(conf, local=local)
    conf(
        args=[],
        project=PROJECT,
        prog=PROGRAM,
        default_config_files=[str(file.path) for file in files],
        default_config_dirs=[],
    )
    return conf


def _plugin_options(
    conf: cfg.ConfigOpts, service: str, environ: Mapping[str, str]
) -> OptionsByGroup:
    """Register the options of the authentication plugin that the section ``service`` names. Return
    them.

    :raises ConfigError: there is no such plugin; the section then counts as one without
        credentials.
    """
    # Imported here for the reason given in agent.conf.options.
    from keystoneauth1 import exceptions as ksa
    from keystoneauth1 import loading

    # Registered again, because auth_section may name another section that has the credentials.
    loading.register_auth_conf_options(conf, service)
    section = conf[service].auth_section or service
    name = conf[section].auth_type
    if not name:
        return []
    try:
        options = loading.get_auth_plugin_conf_options(name)
    except ksa.NoMatchingPlugin as error:
        (option,) = [
            option
            for option in loading.get_auth_common_conf_options()
            if option.dest == "auth_type"
        ]
        found = origin(conf, option, section, environ)
        place = found.place if found else "command line"
        conf.set_override("auth_type", "none", section)
        installed = ", ".join(sorted(loading.get_available_plugin_names()))
        raise ConfigError(
            f"{place}: [{section}] auth_type = {name}: no such authentication plugin",
            f"installed: {installed}",
        ) from error
    conf.register_opts(options, group=section)
    return [(section, options)]
