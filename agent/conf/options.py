"""All options of the agent: their registration for a run, and the list for the generated sample and
reference.
"""

from collections.abc import Mapping, Sequence

from oslo_config import cfg

from agent.conf import compute, default, devices, service

GROUPS: Mapping[str | None, Sequence[cfg.Opt]] = {
    None: default.OPTIONS,
    "compute": compute.COMPUTE,
    "neutron": devices.NEUTRON,
    "neutron_tunnel": devices.TUNNEL,
    "pci": devices.PCI,
    "devices": devices.DEVICES,
    "libvirt": compute.LIBVIRT,
    "image_cache": compute.IMAGE_CACHE,
    "ironic": compute.IRONIC,
    "workarounds": compute.WORKAROUNDS,
    "placement": service.PLACEMENT,
    "nova": [],
    "store": service.STORE,
    "tracker": service.TRACKER,
    "api": service.API,
    "host": compute.HOST,
    "fake": compute.FAKE,
}
# The sections with keystoneauth's options, and their defaults that differ from keystoneauth's.
SERVICES = {
    "placement": service.PLACEMENT_DEFAULTS,
    "ironic": compute.IRONIC_DEFAULTS,
    "nova": service.NOVA_DEFAULTS,
}


def by_group() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return the agent's own options as they are registered."""
    # A group hides an option without group that has its name. So ``host`` is registered in a group
    # DEFAULT, where it can be read beside the section [host].
    ungrouped = [option for option in default.OPTIONS if option.dest != default.HOST.dest]
    return [
        (None, ungrouped),
        ("DEFAULT", [default.HOST]),
        *((group, list(options)) for group, options in GROUPS.items() if group),
        # Not in the sample, because there is no reason to set them.
        *((unused.group, [unused.option]) for unused in default.UNUSED),
    ]


def register(conf: cfg.ConfigOpts, *, local: bool = False) -> None:
    """Register every option of the agent with ``conf``; unless ``local``, those of keystoneauth in
    the sections of other services too.

    They are not registered as oslo.config's command line options, because oslo.config would exit at
    the first bad value without naming its place. The agent's own command line takes every option as
    ``--group-option``.
    """
    for group, options in by_group():
        conf.register_opts(options, group=group)
    # Here, because these defaults follow from the user and the environment of the run.
    conf.set_default("path", service.default_path(), "store")
    conf.set_default("socket", service.default_socket(), "api")
    if not local:
        # Imported here, because it takes 10 MiB and a third of the time of a command that asks the
        # daemon.
        from agent.conf import keystoneauth

        for group, defaults in SERVICES.items():
            keystoneauth.register(conf, group, defaults)


def keystoneauth_options() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return the options of keystoneauth but for those of authentication plugins, for all sections
    that have them.
    """
    # Imported here for the reason given in register.
    from agent.conf import keystoneauth

    return [(group, keystoneauth.options(defaults)) for group, defaults in SERVICES.items()]


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return all options by group, for oslo.config's generators."""
    # Imported here for the reason given in register.
    from agent.conf import keystoneauth

    groups = {group: list(options) for group, options in GROUPS.items()}
    for group, options in keystoneauth_options():
        groups[group] += [*options, *keystoneauth.password_options()]
    return list(groups.items())
