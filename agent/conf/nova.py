"""Options of nova's that change what Placement is told of a host and mean nothing to the agent.
They are read to be named in a warning.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg


@dataclass(frozen=True, slots=True)
class UnusedOption:
    """``matters``: whether the value changes anything in nova; ``instead``: what to do here.
    ``driver``: the only one that it is about.
    """

    group: str | None
    option: cfg.Opt
    matters: Callable[[Any], bool]
    instead: str
    driver: str | None = None


UNUSED = (
    UnusedOption(
        None,
        cfg.BoolOpt("enable_new_services"),
        lambda value: value is False,
        "a new host takes guests at once; set [DEFAULT] enabled = false for one that shall not",
    ),
    UnusedOption(
        "compute",
        cfg.IntOpt("consecutive_build_service_disable_threshold"),
        bool,
        (
            "the agent disables no host because builds fail; agent status and the figures tell how "
            "many have failed"
        ),
    ),
    UnusedOption(
        "ironic",
        cfg.ListOpt("peer_list"),
        bool,
        (
            "one agent manages all nodes of a conductor group and shard; give each agent a shard, "
            "and those that shall stand in for each other one store"
        ),
        driver="ironic",
    ),
)


def by_group() -> list[tuple[str | None, list[cfg.Opt]]]:
    """The options as they are registered. They are not in the sample, because there is no reason to
    set them.
    """
    return [(one.group, [one.option]) for one in UNUSED]
