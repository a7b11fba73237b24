"""What the operator says of PCI devices, read once from the options, and what it comes to on a host."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from oslo_config import cfg

from agent.errors import ConfigError, ConfigErrors
from agent.model.facts import HostFacts
from agent.model.device_record import DeviceRecord
from agent.model.names import ProviderUuid
from agent.pci.alias import OPTION as ALIAS
from agent.pci.alias import Aliases, aliases
from agent.pci.device_rows import device_rows
from agent.pci.device_spec import OPTION, DeviceSpec, device_specs
from agent.pci.matching import matched
from agent.pci.option_value import empty_keys
from agent.pci.present_devices import PresentDevices
from agent.pci.remote_managed import misfits


@dataclass(frozen=True, slots=True)
class PciSettings:
    """``report``: whether devices become providers in Placement; ``warnings``: what of the options may not be meant as it stands."""

    specs: tuple[DeviceSpec, ...] = ()
    aliases: Aliases = field(default_factory=dict)
    report: bool = False
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_options(cls, conf: cfg.ConfigOpts) -> Self:
        """The settings that the options say.

        :raises ConfigErrors: everything that is wrong with them, whatever the host has.
        """
        report = conf.pci.report_in_placement
        specs, errors = device_specs(conf.pci.device_spec, report=report)
        named, more = aliases(conf.pci.alias, report=report)
        if errors or more:
            raise ConfigErrors([*errors, *more])
        empty = empty_keys(OPTION, conf.pci.device_spec, lists=True, meant=("physical_network",)), empty_keys(ALIAS, conf.pci.alias, lists=False)
        return cls(specs, named, report, tuple(line for lines in empty for line in lines))

    def rows(self, node: ProviderUuid, facts: HostFacts) -> tuple[DeviceRecord, ...] | None:
        """The node's devices as the records keep them, all free; None if the facts do not tell, which is not the same as none."""
        return device_rows(node, PresentDevices.of(facts.pci or ()), self.specs) if facts.complete("pci") else None

    def remote_managed(self, facts: HostFacts) -> bool | None:
        """Whether any function is offered that another processor programs, in use or not; None if the facts do not tell."""
        if not facts.complete("pci"):
            return None
        return any(one.spec.remote_managed for one in matched(PresentDevices.of(facts.pci or ()), self.specs))

    def misfits(self, facts: HostFacts) -> Iterator[ConfigError]:
        """Where the settings contradict the host."""
        if facts.complete("pci"):
            yield from misfits(self.specs, PresentDevices.of(facts.pci or ()))
