"""A hypervisor as a cloud has many: its agent is a process of its own, which may be killed at any
moment and started again.
"""

import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from tests.support.ini import Config
from tests.support.service_manager import until
from tests.support.system import AgentCommand, Result

PERIOD = 2
"""Seconds between two audits."""
PATIENCE = 120.0
"""Seconds in which a killed agent has to be well again, on a machine that has more to do."""
UNITS = "CUSTOM_PMEM_NAMESPACE_4GB"
VF, GPU = "CUSTOM_PCI_8086_154C", "CUSTOM_PCI_8086_1533"
"""What counts the functions of its network card, and its other two devices."""
CARD = "0000:82:00.0"
GPUS = ("0000:83:00.0", "0000:84:00.0")
KINDS = {
    "vf": {"vendor_id": "8086", "product_id": "154c"},
    "gpu": {"vendor_id": "8086", "product_id": "1533"},
}
"""By the alias that flavors use."""
RESERVED = {"vcpus": 2, "memory_mb": 512, "disk_mb": 2048}
"""What the host itself keeps."""


def host_file(node: str, units: int = 16, cpus: int = 64) -> str:
    """Two cells of ``cpus`` CPUs and 128 GiB, a quarter of the CPUs for shared guest CPUs, and
    devices; JSON is YAML.
    """
    cells = [
        {"id": cell, "cpus": f"{cell * cpus}-{cell * cpus + cpus - 1}", "memory_mib": 131072}
        for cell in (0, 1)
    ]
    named = [{"resource_class": UNITS, "identifier": f"ns_{number}"} for number in range(units)]
    card = {
        "address": CARD,
        "vendor_id": "8086",
        "product_id": "1572",
        "virtual_functions": {"count": 16, "product_id": "154c"},
    }
    devices = [card, *({"address": one, "vendor_id": "8086", "product_id": "1533"} for one in GPUS)]
    return json.dumps(
        {"name": node, "cells": cells, "disk_gib": 20000, "units": named, "pci": devices}
    )


def config(
    name: str, file: Path, placement: Mapping[str, str], database: str | None, cpus: int = 64
) -> Config:
    """The configuration of the agent of the host called ``name``."""
    shared = [f"{cell * cpus}-{cell * cpus + cpus // 4 - 1}" for cell in (0, 1)]
    dedicated = [f"{cell * cpus + cpus // 4}-{cell * cpus + cpus - 1}" for cell in (0, 1)]
    return {
        "DEFAULT": {
            "compute_driver": "fake.file",
            "host": name,
            "state_path": file.parent / "nova",
            "log_file": file.parent / "agent.log",
            "update_resources_interval": PERIOD,
            "reserved_host_cpus": RESERVED["vcpus"],
            "reserved_host_memory_mb": RESERVED["memory_mb"],
            "reserved_host_disk_mb": RESERVED["disk_mb"],
        },
        "fake": {"host_file": file},
        "compute": {"cpu_shared_set": ",".join(shared), "cpu_dedicated_set": ",".join(dedicated)},
        "pci": {
            "report_in_placement": True,
            "device_spec": [json.dumps(one) for one in KINDS.values()],
            "alias": [json.dumps({"name": name, **one}) for name, one in KINDS.items()],
        },
        "placement": {**placement, "max_in_flight": "1"},
        "store": {"connection": database} if database else {},
    }


class ComputeHost:
    """One of them. ``name``: its ``[DEFAULT] host``; ``node``: the name of its node. Threads may
    share it.

    ``placement``: the credentials; ``database``: the URL of the store that hosts share, None for
    one of its own.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        node: str,
        placement: Mapping[str, str],
        database: str | None = None,
    ) -> None:
        self.name, self.node, self.folder = name, node, folder
        self.file = folder / "host.yaml"
        self.command = AgentCommand(folder, config(name, self.file, placement, database))
        self.file.write_text(host_file(node))
        self.client = ApiClient(self.command.socket)
        self._lock = threading.RLock()
        self._running = contextlib.ExitStack()
        self._process: subprocess.Popen[str] | None = None

    @property
    def identity(self) -> str:
        """The uuid of its node."""
        return self._identity_file.read_text().strip()

    @property
    def has_identity(self) -> bool:
        """Whether its agent has come so far."""
        return self._identity_file.exists()

    def copy_identity(self, other: "ComputeHost") -> None:
        """Be a copy of another host's disk, as far as that says who a host is."""
        self._identity_file.parent.mkdir(parents=True, exist_ok=True)
        (self.command.store / "compute_id").write_text(other._identity_file.read_text())

    @property
    def _identity_file(self) -> Path:
        final, proposed = (
            self.command.store / name for name in ("compute_id", "compute_id.proposed")
        )
        return proposed if proposed.exists() and not final.exists() else final

    @property
    def log(self) -> str:
        """All that its agents have logged."""
        file = self.folder / "agent.log"
        return file.read_text() if file.exists() else ""

    @property
    def bugs(self) -> list[str]:
        """What its agents have logged that no circumstances excuse."""
        return [
            line
            for line in self.log.splitlines()
            if any(sign in line for sign in ("Traceback", " CRITICAL ", ": 500 in "))
        ]

    # --- its agent --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the agent, and do not wait."""
        with self._lock:
            assert self._process is None, f"the agent of {self.name} runs already"
            self._process = self._running.enter_context(self.command.started())

    def kill(self) -> None:
        """End it by SIGKILL, whatever it is doing; harmless if it does not run."""
        with self._lock:
            self._running.close()
            self._process = None

    def crash(self) -> bool:
        """Kill it and start it again; nothing, if it is down. Returns which."""
        with self._lock:
            if self._process is None:
                return False
            self.kill()
            self.start()
            return True

    def stop(self) -> int:
        """End it in order. Returns the exit code."""
        with self._lock:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)
            code = self._process.wait(PATIENCE)
            self.kill()
            return code

    def run_to_the_end(self) -> Result:
        """Start an agent that ends by itself."""
        return self.command.run(timeout=PATIENCE)

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Inside, the host is dead."""
        self.kill()
        yield
        self.start()

    @property
    def trouble(self) -> str:
        """Why its agent is not well; empty if it is."""
        try:
            self.client.readiness()
        except (ApiProblem, ApiUnreachable) as error:
            return str(error)
        return ""

    def is_well(self) -> bool:
        """Whether its agent answers that all is well. Fails if there is none any more
        that could.
        """
        with self._lock:
            process = self._process
            assert process is None or process.poll() is None, (
                f"the agent of {self.name} has ended with {process.returncode}\n{self.log[-4000:]}"
            )
        return not self.trouble

    def wait_until_well(self, seconds: float = PATIENCE) -> None:
        """Fails if it does not come to be well."""
        until(
            self.is_well,
            lambda: f"{self.name} is not well: {self.trouble}\n{self.log[-4000:]}",
            seconds,
        )

    def summary(self) -> Any:
        """Its node as the last audit left it."""
        (found,) = self.client.nodes()
        return found
