"""From a command line to a configuration: files, environment and overrides, with everything wrong in them at once."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from keystoneauth1 import exceptions as ksa
from keystoneauth1 import loading
from oslo_config import cfg
from oslo_log import log

from agent.cli.catalogue import WITH_KEYSTONEAUTH, OptionsByGroup, catalogue, log_options
from agent.cli.config_files import PROGRAM, PROJECT, ConfigFile, read_all, sources_of
from agent.cli.option_values import is_registered, origin, override_problems, problems
from agent.cli.options import Options
from agent.conf import devices, neutron
from agent.conf import options as agent_options
from agent.errors import ConfigError, ConfigErrors


def load(options: Options, environ: Mapping[str, str] = os.environ) -> cfg.ConfigOpts:
    """The configuration. Each call reads everything again and makes a new one.

    The command line wins over environment variables (``OS_GROUP__OPTION``), these over files, later files over
    earlier ones. Options that nobody here knows are ignored, so that a nova.conf can be given as it is.

    :raises ConfigErrors: everything wrong in it.
    """
    files, errors = read_all(sources_of(options.sources))
    conf, known = _parsed(files), catalogue()
    now = [one for one in options.overrides if is_registered(conf, one.group, one.name)]
    errors += override_problems(conf, known, now)
    # A list of networks or types that cannot be read is told below, with its place.
    for register in (neutron.register_physnets, devices.register_types):
        with suppress(ValueError, cfg.Error):
            known += register(conf)
    try:
        for service in WITH_KEYSTONEAUTH:
            known += _plugin_options(conf, service, files, environ)
    except ConfigError as error:
        errors.append(error)
    else:
        # These are the plugins': they can only be taken now that these are known.
        errors += override_problems(conf, known, [one for one in options.overrides if one not in now])
    errors += problems(conf, known, files, environ)
    if errors:
        raise ConfigErrors(errors)
    return conf


def _parsed(files: Sequence[ConfigFile]) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    for group, options in log_options():
        # Registered anew, for the reason given at the agent's own options.
        conf.unregister_opts(options, group)
        conf.register_opts(options, group)
    agent_options.register(conf)
    try:
        conf(args=[], project=PROJECT, prog=PROGRAM, default_config_files=[str(file.path) for file in files], default_config_dirs=[])
    except cfg.Error as error:
        raise ConfigErrors([ConfigError(str(error), "the file has changed while it was read: try again")]) from error
    return conf


def _plugin_options(conf: cfg.ConfigOpts, service: str, files: Sequence[ConfigFile], environ: Mapping[str, str]) -> OptionsByGroup:
    """Register the options of the authentication plugin that the section ``service`` names.

    :raises ConfigError: there is no such plugin.
    """
    # Again, because auth_section may say that another section holds the credentials.
    loading.register_auth_conf_options(conf, service)
    section = conf[service].auth_section or service
    name = conf[section].auth_type
    if not name:
        return []
    try:
        options = loading.get_auth_plugin_conf_options(name)
    except ksa.NoMatchingPlugin as error:
        (option,) = [one for one in loading.get_auth_common_conf_options() if one.dest == "auth_type"]
        found = origin(option, section, files, environ)
        place = found.place if found else "command line"
        installed = ", ".join(sorted(loading.get_available_plugin_names()))
        raise ConfigError(f"{place}: [{section}] auth_type = {name}: no such authentication plugin", f"installed: {installed}") from error
    conf.register_opts(options, group=section)
    return [(section, options)]
