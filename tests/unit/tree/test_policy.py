from dataclasses import replace

import pytest
from oslo_config import cfg

from agent.conf import options
from agent.errors import ConfigErrors
from agent.model.devices import EncryptionFacts
from agent.numa.host_policy import HostPolicy
from agent.pci.settings import PciSettings
from agent.tree.children import offered
from agent.tree.policy import EncryptionPolicy, Policy, Ratio, affinity_warning, option_warnings
from tests.unit.pci.scene import specs


def policy(default=None, compute=None) -> Policy:
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    for group, values in ((None, default or {}), ("compute", compute or {})):
        for name, value in values.items():
            conf.set_override(name, value, group)
    return Policy.from_options(conf)


def complaints(**compute):
    with pytest.raises(ConfigErrors) as refused:
        policy(compute=compute)
    return [error.message for error in refused.value.errors]


def test_the_defaults_are_the_documented_ones():
    assert policy() == Policy()
    assert Policy() == Policy(
        HostPolicy(None, None),
        Ratio(None, 4.0),
        Ratio(None, 1.0),
        Ratio(None, 1.0),
        reserved_memory_mib=512,
        owner_trait="OWNER_NOVA",
        enabled=None,
    )


def test_options_become_policy():
    assert policy(
        {
            "cpu_allocation_ratio": 8.0,
            "initial_ram_allocation_ratio": 1.2,
            "disk_allocation_ratio": 0.9,
            "reserved_host_cpus": 2,
            "reserved_host_memory_mb": 1024,
            "reserved_host_disk_mb": 1025,
            "enabled": False,
        },
        {
            "cpu_shared_set": "0-3,^2",
            "cpu_dedicated_set": "4,5",
            "tree_layout": "flat",
            "owner_trait": "CUSTOM_OWNER",
        },
    ) == Policy(
        HostPolicy(frozenset({0, 1, 3}), frozenset({4, 5})),
        Ratio(8.0, 4.0),
        Ratio(None, 1.2),
        Ratio(0.9, 1.0),
        2,
        1024,
        1025,
        "flat",
        "CUSTOM_OWNER",
        False,
    )


@pytest.mark.parametrize(
    ("ratio", "present", "used"),
    [
        (Ratio(8.0, 4.0), 2.0, 8.0),
        (Ratio(8.0, 4.0), None, 8.0),
        (Ratio(None, 4.0), 2.0, 2.0),
        (Ratio(0.0, 4.0), 2.0, 2.0),
        (Ratio(None, 4.0), None, 4.0),
        (Ratio(0.0, 4.0), 0.0, 4.0),
    ],
)
def test_the_configured_ratio_wins_then_the_one_in_placement_then_the_initial_one(
    ratio, present, used
):
    assert ratio.of(present) == used


def test_the_ratios_that_the_operator_set():
    assert Policy(
        cpu_ratio=Ratio(8.0), memory_ratio=Ratio(0.0), disk_ratio=Ratio(None, 2.0)
    ).configured_ratios == {"VCPU": 8.0}


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_cpu_set_is_none(text):
    assert policy(compute={"cpu_shared_set": text}).host.shared is None


def test_all_that_is_wrong_is_told_at_once():
    assert complaints(cpu_shared_set="0-x", cpu_dedicated_set="^4", owner_trait="owner nova\n") == [
        "[compute] cpu_shared_set = 0-x: '0-x' is neither a CPU number nor a range A-B",
        "[compute] cpu_dedicated_set = ^4: '^4' leaves no CPU",
        "[compute] owner_trait = owner nova\\n: no trait has such a name",
    ]


def test_a_cpu_is_in_one_set_only():
    assert complaints(cpu_shared_set="0-5", cpu_dedicated_set="2,4-7") == [
        "[compute] cpu_shared_set and cpu_dedicated_set both have CPU 2,4-5"
    ]


# --- what an operator is told of options that can be used, but do something else than nova's would ---


@pytest.fixture(autouse=True)
def _no_files_of_nova(tmp_path, monkeypatch):
    monkeypatch.setattr("agent.tree.policy.NOVA_PROVIDER_CONFIG", tmp_path)


def warnings(driver, **ironic):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[])
    for name, value in ironic.items():
        conf.set_override(name, value, "ironic")
    return list(
        option_warnings(conf, driver, Policy.from_options(conf), PciSettings.from_options(conf))
    )


def test_the_peers_of_an_ironic_compute_service_are_named_with_what_takes_their_place():
    (told,) = warnings("ironic", peer_list=["a", "b"])
    assert told.startswith(
        "[ironic] peer_list = a,b has no effect here: one agent manages all nodes of a "
        "conductor group and shard"
    )
    assert warnings("libvirt", peer_list=["a", "b"]) == []


# --- a layout in which nearness means nothing: devices in cells, all CPUs on the root ---


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


# --- how many contexts each technique is given ---


@pytest.mark.parametrize(
    ("found", "guests", "expected"),
    [
        ({}, 16, {}),
        ({"sev": 15, "sev_es": 100}, None, {"sev": 15, "sev_es": 100}),
        ({"sev": 15, "sev_es": 100}, 10, {"sev": 10, "sev_es": 100}),
        ({"sev": 15, "sev_es": 100}, 0, {"sev_es": 100}),
        ({"sev": 15, "sev_es": 100, "sev_snp": 100}, None, {"sev": 15, "sev_snp": 100}),
        ({"sev_es": 100, "sev_snp": 0}, None, {"sev_es": 100}),
        ({"tdx": 31}, 40, {"tdx": 31}),
        ({"tdx": 31}, 8, {"tdx": 8}),
        ({"sev": 0}, 16, {}),
        ({"sev": None, "sev_es": None}, None, {}),
        ({"sev": None, "sev_es": None}, 16, {"sev": 16}),
    ],
)
def test_contexts_that_are_offered(found, guests, expected):
    assert offered(EncryptionFacts(found), EncryptionPolicy(guests)) == expected
