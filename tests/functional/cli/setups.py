"""Configurations of the agents under test."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Config
from tests.support.placement import Placement
from tests.support.system import AgentCommand, AgentHere
from tests.support.tracking import guest


def merged(*configs: Config) -> dict[str, dict[str, Any]]:
    """Configurations one over the other."""
    found: dict[str, dict[str, Any]] = {}
    for config in configs:
        for group, options in config.items():
            found.setdefault(group, {}).update(options)
    return found


def towards(placement: Placement, url: str | None = None) -> Config:
    """The section that leads to ``placement``, through a proxy's ``url`` if given."""
    # One request at a time, because Placement on SQLite answers 500 to writes side by side.
    return {"placement": {**placement.credentials(url), "max_in_flight": 1}}


def on(
    placement: Placement, driver: str = "fake.numa", *configs: Config
) -> dict[str, dict[str, Any]]:
    """The configuration of a host called node-a with ``driver`` on ``placement``, and ``configs``
    over it.
    """
    return merged(
        {"DEFAULT": {"compute_driver": driver, "host": "node-a", "state_path": "/nonexistent"}},
        towards(placement),
        *configs,
    )


def host_file(agent: AgentCommand, host: Mapping[str, Any]) -> Path:
    """Write the host file of ``fake.file``."""
    file = agent.folder / "host.yaml"
    # JSON is YAML, and its strings are quoted, so that an address stays text.
    file.write_text(json.dumps(host, ensure_ascii=False))
    return file


def from_file(placement: Placement, folder: Path, host: Mapping[str, Any]) -> AgentHere:
    """``fake.file`` with a host on ``placement``."""
    agent = AgentHere(folder)
    agent.configure(on(placement, "fake.file", {"fake": {"host_file": host_file(agent, host)}}))
    return agent


def numa_host(placement: Placement, folder: Path) -> AgentHere:
    """The host of etc/hosts/numa.yaml on ``placement``, with its network card offered."""
    agent = AgentHere(folder)
    shutil.copy(CHECKOUT / "etc" / "hosts" / "numa.yaml", folder / "host.yaml")
    policy = {
        "cpu_shared_set": "0-1,4-5,8-9,12-13",
        "cpu_dedicated_set": "2-3,6-7,10-11,14-15",
        "tree_layout": "nested",
    }
    agent.configure(
        merged(
            on(placement, "fake.file", {"fake": {"host_file": folder / "host.yaml"}}),
            {
                "compute": policy,
                "pci": {"device_spec": '{"vendor_id": "8086", "product_id": "1515"}'},
            },
        )
    )
    return agent


def configured(
    agent: AgentHere, placement: HttpPlacement, host: Mapping[str, Any], **groups: Mapping[str, Any]
) -> None:
    log = {"DEFAULT": {"log_file": agent.folder / "agent.log", "update_resources_interval": -1}}
    agent.configure(
        on(placement, "fake.file", {"fake": {"host_file": host_file(agent, host)}}, log, groups)
    )


def tree(placement: HttpPlacement) -> dict[str, dict[str, Any]]:
    """The providers in Placement by their names below the root's."""
    found = placement.dump()["providers"].values()
    (root,) = [one["name"] for one in found if one["parent"] is None]
    return {one["name"].removeprefix(root).removeprefix("_"): one for one in found}


def totals(placement: HttpPlacement, name: str, field: str = "total") -> dict[str, int]:
    """What each provider has of a class."""
    return {
        provider: one["inventories"][name][field]
        for provider, one in tree(placement).items()
        if name in one["inventories"]
    }


def uuids_of(placement: HttpPlacement) -> dict[str, str]:
    """The uuid of each provider by its name below the root's."""
    return {
        one["name"].removeprefix("node-a").removeprefix("_"): uuid
        for uuid, one in placement.dump()["providers"].items()
    }


def held(placement: HttpPlacement, name: str) -> dict[str, dict[str, int]]:
    """What the guest holds, by provider."""
    dump = placement.dump()
    names = {
        uuid: one["name"].removeprefix("node-a").removeprefix("_")
        for uuid, one in dump["providers"].items()
    }
    found = dump["consumers"].get(guest(name), {"allocations": {}})["allocations"]
    return {names[uuid]: dict(resources) for uuid, resources in found.items()}


def ready(client: ApiClient) -> bool:
    try:
        client.readiness()
    except (ApiProblem, ApiUnreachable):
        return False
    return True


def pinned(name: str, cell: int, *cpus: int) -> dict[str, Any]:
    """A guest of the host file, pinned to these CPUs."""
    return {
        "uuid": guest(name),
        "name": name,
        "cells": [
            {
                "host_cell": cell,
                "memory_mib": 1024,
                "dedicated": f"0-{len(cpus) - 1}",
                "pins": {str(index): cpu for index, cpu in enumerate(cpus)},
            }
        ],
    }
