"""``agent pci cleaned``."""

from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config import cfg
from rich.text import Text

from agent.cli.daemon_client import client
from agent.cli.options import Options
from agent.cli.record_lists import show_one
from agent.errors import ConfigError
from agent.model.pci_address import PciAddress
from agent.render.look import Look


def mark_devices_cleaned(conf: cfg.ConfigOpts, options: Options) -> int:
    """Tell the agent that somebody has cleaned a device.

    :raises ConfigError: that is no address, or several nodes are named.
    :raises ApiProblem, ApiUnreachable: the agent refuses, or none runs.
    """
    try:
        address = PciAddress.parse(options.arguments["address"])
    except ValueError as error:
        raise ConfigError(str(error), "write it as 0000:81:00.0") from error
    if len(options.nodes) > 1:
        raise ConfigError("--node names several nodes", "name the one that has the device")
    return show_one(options, "device", client(conf).report_cleaned_device(str(address), *options.nodes), _cleaned_lines)


def _cleaned_lines(documents: Sequence[Mapping[str, Any]], _look: Look) -> list[Text]:
    return [Text(f"device {one['address']} of node {one['node_name']} ({one['node']}) is clean; guests can have it again") for one in documents]
