"""nova's options that change what nova reports of a host to Placement, and that the agent does not
use. They are registered so that the agent can warn of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg


@dataclass(frozen=True, slots=True)
class UnusedOption:
    """One such option."""

    group: str | None
    option: cfg.Opt
    matters: Callable[[Any], bool]
    """Whether a value changes anything in nova, as a function of the value."""
    instead: str
    """What the agent does, or what to set instead."""
    driver: str | None = None
    """The only driver that the option concerns; None: every driver."""


UNUSED = (
    UnusedOption(
        None,
        cfg.BoolOpt("enable_new_services"),
        lambda value: value is False,
        "a new host takes guests at once; set [DEFAULT] enabled = false for a host that shall not",
    ),
    UnusedOption(
        "compute",
        cfg.IntOpt("consecutive_build_service_disable_threshold"),
        bool,
        (
            "the agent disables no host because builds fail; agent status and the metrics show how "
            "many have failed"
        ),
    ),
    UnusedOption(
        "ironic",
        cfg.ListOpt("peer_list"),
        bool,
        (
            "one agent manages all nodes of a conductor group and shard; give each agent a shard, "
            "and one store to agents that shall stand in for each other"
        ),
        driver="ironic",
    ),
)


def by_group() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return the options to register. The sample does not have them, because there is no reason to
    set them.
    """
    return [(unused.group, [unused.option]) for unused in UNUSED]
