"""The configuration of a run: made from files, environment and command line, with all errors at
once.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from keystoneauth1 import exceptions as ksa
from keystoneauth1 import loading
from oslo_config import cfg
from oslo_log import log

from agent.cli.config_files import PROGRAM, PROJECT, ConfigFile, read_all, sources_of
from agent.cli.option_values import (
    WITH_KEYSTONEAUTH,
    OptionsByGroup,
    catalogue,
    is_registered,
    log_options,
    origin,
    override_problems,
    reset_unusable_values,
)
from agent.cli.options import Options
from agent.conf import devices, neutron
from agent.conf import options as agent_options
from agent.errors import ConfigError, ConfigErrors


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration that was read, with its errors."""

    conf: cfg.ConfigOpts
    """The options; those with an unusable value have their defaults."""
    files: Sequence[ConfigFile]
    """The files that are text."""
    errors: Sequence[ConfigError]
    whole: bool
    """Whether every file is text."""


def load(options: Options, environ: Mapping[str, str] = os.environ) -> cfg.ConfigOpts:
    """Return the configuration. Each call reads everything again and returns a new object.

    The command line wins over environment variables (``OS_GROUP__OPTION``), these over files, later
    files over earlier ones. Unknown options are no error, so that a nova.conf can be given as it
    is.

    :raises ConfigErrors: all errors of the configuration.
    """
    found = read_configuration(options, environ)
    if found.errors:
        raise ConfigErrors(found.errors)
    return found.conf


def read_configuration(options: Options, environ: Mapping[str, str] = os.environ) -> Configuration:
    """Return the configuration as far as it can be used, and all its errors."""
    files, errors = read_all(sources_of(options.sources))
    whole = all(any(error.data.get("file") == str(file.path) for file in files) for error in errors)
    conf, known = _parse_files(files), catalogue()
    now = [
        override
        for override in options.overrides
        if is_registered(conf, override.group, override.name)
    ]
    errors += override_problems(conf, known, now)
    # A list of networks or types that cannot be read is reported below, with its place.
    for register in (neutron.register_physnets, devices.register_types):
        with suppress(ValueError, cfg.Error):
            known += register(conf)
    unknown_plugins = []
    for service in WITH_KEYSTONEAUTH:
        try:
            known += _plugin_options(conf, service, files, environ)
        except ConfigError as error:
            unknown_plugins.append(error)
    errors += unknown_plugins
    if not unknown_plugins:
        # Options of the plugins can be set only now that they are registered.
        errors += override_problems(
            conf, known, [override for override in options.overrides if override not in now]
        )
    errors += reset_unusable_values(conf, known, files, environ)
    return Configuration(conf, files, errors, whole)


def _parse_files(files: Sequence[ConfigFile]) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    for group, options in log_options():
        # Registered again, for the reason given in agent.conf.options.
        conf.unregister_opts(options, group)
        conf.register_opts(options, group)
    agent_options.register(conf)
    with ExitStack() as stack:
        paths = [
            str(file.path) if file.mended is None else stack.enter_context(_in_memory(file.mended))
            for file in files
        ]
        try:
            conf(
                args=[],
                project=PROJECT,
                prog=PROGRAM,
                default_config_files=paths,
                default_config_dirs=[],
            )
        except cfg.Error as error:
            raise ConfigErrors(
                [ConfigError(str(error), "the file has changed while it was read: try again")]
            ) from error
    return conf


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Yield the path of a file with ``text`` in memory, on no disk, because ``text`` may have
    secrets.
    """
    descriptor = os.memfd_create("configuration")
    try:
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _plugin_options(
    conf: cfg.ConfigOpts, service: str, files: Sequence[ConfigFile], environ: Mapping[str, str]
) -> OptionsByGroup:
    """Register the options of the authentication plugin that the section ``service`` names. Return
    them.

    :raises ConfigError: there is no such plugin; the section then counts as one without
        credentials.
    """
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
        found = origin(option, section, files, environ)
        place = found.place if found else "command line"
        conf.set_override("auth_type", "none", section)
        installed = ", ".join(sorted(loading.get_available_plugin_names()))
        raise ConfigError(
            f"{place}: [{section}] auth_type = {name}: no such authentication plugin",
            f"installed: {installed}",
        ) from error
    conf.register_opts(options, group=section)
    return [(section, options)]
