"""A layout in which nearness means nothing: devices in cells, all CPUs on the root."""

from dataclasses import replace

import pytest

from agent.numa.host_policy import HostPolicy
from agent.pci.settings import PciSettings
from agent.tree.option_warnings import affinity_warning
from agent.tree.policy import Policy
from tests.unit.pci.scene import specs

NESTED = Policy(layout="nested")
TOLD = PciSettings(specs=specs({"product_id": "1572"}), report=True)


def test_cpus_on_the_root_and_devices_in_cells_are_worth_a_warning():
    assert "cpu_dedicated_set" in (affinity_warning(NESTED, TOLD) or "")


@pytest.mark.parametrize(
    ("policy", "pci"),
    [
        (Policy(layout="flat"), TOLD),
        (NESTED, replace(TOLD, report=False)),
        (NESTED, replace(TOLD, specs=())),
        (Policy(HostPolicy(dedicated=frozenset({1})), layout="nested"), TOLD),
    ],
)
def test_else_there_is_nothing_to_say(policy, pci):
    assert affinity_warning(policy, pci) is None
