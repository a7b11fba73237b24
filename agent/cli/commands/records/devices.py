"""``agent pci cleaned``: the report that a device was cleaned."""

from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config import cfg
from rich.text import Text

from agent.cli.command import Options
from agent.cli.daemon_client import client
from agent.cli.record_lists import show_record
from agent.errors import ConfigError
from agent.model.devices import PciAddress
from agent.render.look import Look


def mark_devices_cleaned(conf: cfg.ConfigOpts, options: Options) -> int:
    """Report to the daemon that a device was cleaned. Return the exit code.

    :raises ConfigError: the argument is not an address, or ``--node`` names several nodes.
    :raises ApiProblem, ApiUnreachable: the daemon refuses, or none runs.
    """
    try:
        address = PciAddress.parse(options.arguments["address"])
    except ValueError as error:
        raise ConfigError(str(error), "write it as 0000:81:00.0") from error
    if len(options.nodes) > 1:
        raise ConfigError("--node names several nodes", "name the one that has the device")
    return show_record(
        options,
        "device",
        client(conf).report_cleaned_device(str(address), *options.nodes),
        _cleaned_lines,
    )


def _cleaned_lines(documents: Sequence[Mapping[str, Any]], _look: Look) -> list[Text]:
    return [
        Text(
            f"device {device['address']} of node {device['node_name']} ({device['node']}) is "
            "clean; guests can have it again"
        )
        for device in documents
    ]
