import pytest

from agent.errors import ConfigErrors
from agent.numa.network_affinity import NetworkAffinity, network_affinity


def test_networks_are_local_to_the_cells_that_are_named():
    affinity = network_affinity({"foo": ["0"], "bar": ["0", " 8 "]}, ["8"], [0, 8])
    assert affinity == NetworkAffinity({"foo": frozenset({0}), "bar": frozenset({0, 8})}, frozenset({8}))


def test_nothing_named_is_local_nowhere():
    assert network_affinity({}, [], [0]) == NetworkAffinity()


def test_everything_wrong_is_told_at_once_with_network_node_and_what_there_is():
    with pytest.raises(ConfigErrors) as errors:
        network_affinity({"foo": [], "bar": ["0", "7", "x"], "evil\x1b": ["-1"]}, ["9", ""], [8, 0])
    assert [error.message for error in errors.value.errors] == [
        "physical network foo: no NUMA node given",
        "physical network bar: NUMA node 7 is not there",
        "physical network bar: NUMA node 'x' is no number",
        r"physical network evil\x1b: NUMA node '-1' is no number",
        "tunnels: NUMA node 9 is not there",
        "tunnels: NUMA node '' is no number",
    ]
    assert {error.remedy for error in errors.value.errors} == {"the host has 0, 8"}


def test_a_host_without_cells_has_no_node():
    with pytest.raises(ConfigErrors, match="NUMA node 0 is not there") as errors:
        network_affinity({}, ["0"], [])
    assert errors.value.errors[0].remedy == "the host has none"
