"""A driver as somebody else writes one: nothing but the interface. Tests put their own faults in
place of its methods.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from oslo_config import cfg

from agent.driver.interface import HostContext
from agent.model.facts import CpuFacts, HostFacts
from tests.support import distribution

UUID = "8c1f7a52-3f0c-4c0b-9d57-5f3c9e1a2b01"
MODULE_THAT_FAILS = "raise ValueError('a module\\nthat fails')\n"


class ThirdPartyDriver:
    """One node with 4 CPUs and 2048 MiB; named by ``[DEFAULT] host``, or by the environment's
    ``THIRD_PARTY_NODE``.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._host: HostContext | None = None

    def start(self, host: HostContext) -> None:
        self._host = host

    def stop(self) -> None:
        pass

    def nodes(self, refresh: bool = False) -> Mapping[str, str]:
        assert self._host is not None
        return {UUID: os.environ.get("THIRD_PARTY_NODE") or self._host.name}

    def facts(self, name: str) -> HostFacts:
        return HostFacts(
            name,
            time.time(),
            "third-party",
            cpu=CpuFacts(frozenset(range(4)), "x86_64"),
            memory_mib=2048,
            disk_gib=0,
        )

    def is_node_deleted(self, name: str) -> bool:
        return False


class NoDriver:
    """Lacks most of the interface."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        pass

    def start(self, host: HostContext) -> None:
        pass


def install(folder: Path) -> Path:
    """Install it, and some that cannot be loaded; the folder for PYTHONPATH."""
    drivers = {
        "outside": f"{__name__}:ThirdPartyDriver",
        "outside.nothing": f"{__name__}:NoDriver",
        "outside.nowhere": "no_such_module_of_the_tests:Driver",
        "outside.fails": "module_that_fails:Driver",
    }
    site = distribution.install(folder, "third-party-driver", drivers)
    (site / "module_that_fails.py").write_text(MODULE_THAT_FAILS)
    return site
