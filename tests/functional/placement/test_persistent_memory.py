"""Namespaces of persistent memory in Placement, from the option of the libvirt driver to the
inventory.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigErrors
from drivers.libvirt.host import configured_namespaces, read_units
from tests.functional.placement.conftest import Host
from tests.support.agent import NAME
from tests.support.mdev_host import counted, host_of
from tests.support.placement import PlacementServer

A, B = "CUSTOM_PMEM_NAMESPACE_A", "CUSTOM_PMEM_NAMESPACE_B"
LISTED: list[dict[str, Any]] = [
    {
        "dev": f"namespace{number}.0",
        "name": f"ns{number}",
        "size": 4 << 30,
        "daxregion": {"devices": [{"chardev": f"dax{number}.0"}]},
    }
    for number in range(3)
]


@pytest.fixture
def ndctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of three namespaces: what its ``ndctl`` prints is in the file."""
    listed, command = tmp_path / "listed", tmp_path / "bin" / "ndctl"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nwhile read -r line; do echo "$line"; done < {listed}\n')
    command.chmod(0o755)
    listed.write_text(json.dumps(LISTED) + "\n")
    monkeypatch.setenv("PATH", str(command.parent))
    return listed


def test_each_label_counts_its_namespaces(
    host: Host, placement: PlacementServer, ndctl: Path
) -> None:
    agent = host()
    agent.driver.facts_of = host_of(units=read_units(configured_namespaces(["a:ns0|ns1", "b:ns2"])))
    agent.once()
    assert counted(placement, A, B) == {NAME: {A: (2, 0, 2), B: (1, 0, 1)}}
    agent.driver.facts_of = host_of(units=read_units(configured_namespaces(["a:ns0"])))
    agent.once()
    assert counted(placement, A, B) == {NAME: {A: (1, 0, 1)}}


def test_a_namespace_is_given_once_and_there(ndctl: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        configured_namespaces(["a:ns0|ns1", "b:ns0", "A:ns2", "c"])
    assert [one.message for one in caught.value.errors] == [
        "[libvirt] pmem_namespaces: 'c' is no label with its namespaces",
        "[libvirt] pmem_namespaces: the label A is given 2 times",
        "[libvirt] pmem_namespaces: the namespace ns0 is given 2 times",
    ]
    ndctl.write_text(json.dumps(LISTED[:1]) + "\n")
    with pytest.raises(ConfigErrors) as caught:
        read_units(configured_namespaces(["a:ns0|ns1", "b:ns2"]))
    assert [(one.message, one.remedy) for one in caught.value.errors] == [
        (
            f"[libvirt] pmem_namespaces: this host has no namespace {name}",
            "the host has ns0 (ndctl list --namespaces)",
        )
        for name in ("ns1", "ns2")
    ]
