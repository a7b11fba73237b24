"""Warnings about options that are valid but work differently than in nova, or than they seem to.
Derived from the options alone.
"""

from collections.abc import Iterator
from pathlib import Path

from oslo_config import cfg

from agent.conf import default
from agent.model.names import name_first, printable
from agent.model.topology import format_cpu_list
from agent.numa.host_policy import DEDICATED, PIN_SET, SHARED
from agent.pci.settings import PciSettings
from agent.tree.policy import Policy


def affinity_warning(policy: Policy, pci: PciSettings) -> str | None:
    """Return a warning about devices below their cells while all CPUs are counted on the root,
    which is above every cell; None if that is not so.
    """
    if (
        policy.layout != "nested"
        or not (pci.report and pci.specs)
        or policy.host.dedicated is not None
    ):
        return None
    return (
        "the tree is nested and has devices below its cells, but all CPUs are on the root: "
        "same_subtree of both does not show how near they are; "
        "set [compute] cpu_dedicated_set, or ask for HW_NUMA_ROOT in a group of its own"
    )


# Where nova looks for provider files by default.
NOVA_PROVIDER_CONFIG = Path("/etc/nova/provider_config")


def option_warnings(
    conf: cfg.ConfigOpts, driver: str, policy: Policy, pci: PciSettings
) -> Iterator[str]:
    """Yield one line for each warning. ``driver``: the driver's canonical name."""
    if (affinity := affinity_warning(policy, pci)) is not None:
        yield affinity
    yield from _cpu_sets(conf, policy)
    yield from _provider_config(conf)
    yield from pci.warnings
    for unused in default.UNUSED:
        section, name = unused.group, unused.option.dest
        value = conf[section][name] if section else conf[name]
        if unused.matters(value) and unused.driver in (None, driver):
            yield (
                f"[{section or 'DEFAULT'}] {name} = {_text(value)} has no effect here: "
                f"{unused.instead}"
            )


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value).lower()


def _cpu_sets(conf: cfg.ConfigOpts, policy: Policy) -> Iterator[str]:
    """Yield warnings about options for CPU sets."""
    host = policy.host
    if host.pin_set:
        cpus = format_cpu_list(host.shared or frozenset())
        yield (
            f"{PIN_SET} = {cpus} is nova's old option: its CPUs are VCPU, for dedicated guest CPUs "
            f"too; write {SHARED} and {DEDICATED} instead, and remove it"
        )
        if conf.compute.cpu_shared_set:
            yield (
                f"{SHARED} counts nothing beside {PIN_SET}, as in nova: only emulator threads are "
                "meant for it; remove vcpu_pin_set"
            )
    elif policy.reserved_cpus and (host.shared or host.dedicated):
        of = "they are taken out of VCPU" if host.shared else "it has no effect without VCPU"
        yield (
            f"[DEFAULT] reserved_host_cpus = {policy.reserved_cpus} beside CPU sets, with which "
            f"nova does not start: {of}; leave those CPUs out of the sets"
        )


def _provider_config(conf: cfg.ConfigOpts) -> Iterator[str]:
    """Warn of files in nova's default folder: the agent's default is another one, so a nova.conf
    that sets no folder does not name them.
    """
    where = conf.get_location("provider_config_location", "compute")
    if (
        where is not None
        and where.location is cfg.Locations.opt_default
        and (files := sorted(NOVA_PROVIDER_CONFIG.glob("*.yaml")))
    ):
        names = printable(name_first([file.name for file in files]))
        yield (
            f"{NOVA_PROVIDER_CONFIG}/ has {names}, which nova reads and the agent does not: set "
            "[compute] provider_config_location"
        )
