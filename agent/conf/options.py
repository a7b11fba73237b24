"""All options together: registration for a run, and the list for the generated sample and reference."""

from oslo_config import cfg

from agent.conf import compute, default, fake, host, placement, store

GROUPS = (default, compute, placement, store, host, fake)


def register(conf: cfg.ConfigOpts) -> None:
    """Register every option of the agent with ``conf``, each also valid on the command line as ``--group-option``."""
    for module in GROUPS:
        conf.register_cli_opts(module.OPTIONS, group=module.GROUP)
    placement.register_keystoneauth(conf)


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """For oslo.config's generators."""
    groups = {module.GROUP: list(module.OPTIONS) for module in GROUPS}
    groups["placement"] += placement.keystoneauth_options()
    return list(groups.items())
