"""All options of the agent: their registration for a run, and the list for the generated sample and
reference.
"""

from oslo_config import cfg

from agent.conf import (
    api,
    compute,
    default,
    devices,
    fake,
    host,
    image_cache,
    ironic,
    libvirt,
    neutron,
    neutron_tunnel,
    nova,
    nova_api,
    pci,
    placement,
    store,
    tracker,
    workarounds,
)

GROUPS = (
    default,
    compute,
    neutron,
    neutron_tunnel,
    pci,
    devices,
    libvirt,
    image_cache,
    ironic,
    workarounds,
    placement,
    nova_api,
    store,
    tracker,
    api,
    host,
    fake,
)
SERVICES = (placement, ironic, nova_api)


def by_group() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return the agent's own options as they are registered."""
    # A group hides an option without group that has its name. So ``host`` is registered in a group
    # DEFAULT, where it can be read beside the section [host].
    ungrouped = [option for option in default.OPTIONS if option.dest != default.HOST.dest]
    return [
        (None, ungrouped),
        ("DEFAULT", [default.HOST]),
        *((module.GROUP, list(module.OPTIONS)) for module in GROUPS if module.GROUP),
        *nova.by_group(),
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
    conf.set_default("path", store.default_path(), store.GROUP)
    conf.set_default("socket", api.default_socket(), api.GROUP)
    if not local:
        # Imported here, because it takes 10 MiB and a third of the time of a command that asks the
        # daemon.
        from agent.conf import keystoneauth

        for service in SERVICES:
            keystoneauth.register(conf, service.GROUP, service.DEFAULTS)


def keystoneauth_options() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return the options of keystoneauth, for all sections that have them."""
    # Imported here for the reason given in register.
    from agent.conf import keystoneauth

    return [(service.GROUP, keystoneauth.sample_options(service.DEFAULTS)) for service in SERVICES]


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return all options by group, for oslo.config's generators."""
    groups: dict[str | None, list[cfg.Opt]] = {
        module.GROUP: list(module.OPTIONS) for module in GROUPS
    }
    for group, options in keystoneauth_options():
        groups[group] += options
    return list(groups.items())
