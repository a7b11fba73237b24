"""Persistent memory for guests: what the option says, and what the host has."""

import json

import pytest

from agent.errors import ConfigErrors, DriverError
from drivers.libvirt.host import Namespace, configured_namespaces, read_units

LISTED = [
    {
        "dev": "namespace0.0",
        "mode": "devdax",
        "size": 1073741824,
        "name": "ns0",
        "daxregion": {"devices": [{"chardev": "dax0.0"}]},
    },
    {
        "dev": "namespace0.1",
        "mode": "devdax",
        "size": 2147483648,
        "name": "ns1",
        "chardev": "dax0.1",
    },
    {"dev": "namespace1.0", "mode": "fsdax", "size": 4294967296, "blockdev": "pmem1"},
]


@pytest.fixture
def ndctl(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def lists(text):
        (tmp_path / "listed").write_text(text)
        (tmp_path / "ndctl").write_text(f"#!/bin/sh\ncat {tmp_path}/listed\n")
        (tmp_path / "ndctl").chmod(0o755)

    return lists


def test_all_that_is_wrong_with_the_option_is_told_at_once():
    with pytest.raises(ConfigErrors) as caught:
        configured_namespaces(["a:ns0", "A:ns2", "ns1", "b:", "c d:ns3", "e:ns4|ns4", "f:n s"])
    told = [error.message for error in caught.value.errors]
    assert len(told) == 6
    assert sum("is no label with its namespaces" in one for one in told) == 4
    assert any("the label A is given 2 times" in one for one in told)
    assert any("the namespace ns4 is given 2 times" in one for one in told)


def test_a_namespace_that_the_host_does_not_have_is_an_error_that_says_which_it_has(ndctl):
    ndctl(json.dumps(LISTED[:1]))
    with pytest.raises(ConfigErrors, match="this host has no namespace ns1") as caught:
        read_units([Namespace("ns0", "a"), Namespace("ns1", "a")])
    assert "the host has ns0" in caught.value.remedy


def test_one_namespace_alone_and_none_are_told_as_ndctl_does(ndctl):
    ndctl(json.dumps(LISTED[0]))
    assert len(read_units([Namespace("ns0", "a")])) == 1
    ndctl("")
    with pytest.raises(ConfigErrors, match="no namespace ns0"):
        read_units([Namespace("ns0", "a")])


@pytest.mark.parametrize("text", ["{", "3", '["a"]', "[{}]", '[{"dev": "a"}]', "[" * 100_000])
def test_what_ndctl_would_never_say_is_an_error(ndctl, text):
    ndctl(text)
    with pytest.raises(DriverError, match="ndctl lists namespaces in a form"):
        read_units([Namespace("ns0", "a")])
