"""``agent pci check``, and what the other commands say of ``[pci]``."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from agent.store.records import Records
from agent.store.store import open_read_only
from tests.functional.cli.refusals import refused, the_only
from tests.functional.cli.setups import host_file, merged, on
from tests.support.system import AgentHere

CHECK = ("pci", "check")
CARD = {
    "address": "0000:81:02.0",
    "vendor_id": "8086",
    "product_id": "1572",
    "numa_node": 0,
    "netdev": "ens1f0",
    "virtual_functions": {"count": 2, "product_id": "154c"},
}
BUSY = {
    "address": "0000:81:02.7",
    "vendor_id": "8086",
    "product_id": "154c",
    "physical_function": "0000:81:02.0",
    "host_use": "a router",
}
PLAIN = {"address": "0000:81:00.0", "vendor_id": "8086", "product_id": "1533", "label": "a\nb"}
HOST = {"pci": [CARD, BUSY, {**PLAIN, "label": "slot 3"}]}


@pytest.fixture
def check(agent: AgentHere, http_placement):
    """Configure host and ``[pci]``, and check."""

    def run(host: Mapping[str, Any], specs: list[Any], *arguments: str, **pci: Any):
        options = {"device_spec": [json.dumps(one) for one in specs], **pci}
        agent.configure(
            on(
                http_placement,
                "fake.file",
                merged({"fake": {"host_file": host_file(agent, host)}}, {"pci": options}),
            )
        )
        return agent.run(*CHECK, *arguments)

    return run


def test_what_each_object_offers(agent: AgentHere, check) -> None:
    result = check(
        HOST, [[{"product_id": "154c", "address": "0000:81:02.[1]"}], {"product_id": "1572"}]
    )
    assert result.code == 1
    result = check(
        HOST,
        [
            [
                {"product_id": "154c", "address": {"function": "[12]"}, "trusted": "yes"},
                {"product_id": "ffff"},
            ],
            {"product_id": "1533"},
        ],
    )
    assert result.code == 0
    assert result.stdout.splitlines() == [
        "node-a",
        "  #1.1  2 devices",
        "    0000:81:02.1  8086:154c  type-VF  NUMA node 0  trusted=true",
        "    0000:81:02.2  8086:154c  type-VF  NUMA node 0  trusted=true",
        "  #1.2  no devices",
        "  #2  1 device",
        "    0000:81:00.0  8086:1533  type-PCI",
        "  not offered, on the same cards",
        "    0000:81:02.0  8086:1572  type-PF  NUMA node 0",
        "    0000:81:02.7  8086:154c  type-VF  a router",
    ]
    assert not agent.store.exists()


def test_classes_traits_and_aliases_are_shown_as_placement_has_them(check) -> None:
    alias = [
        json.dumps(
            {"name": "nic", "vendor_id": "8086", "product_id": "1533", "live_migratable": "no"}
        )
    ]
    result = check(
        HOST, [{"product_id": "1533", "traits": "purple"}], alias=alias, report_in_placement=True
    )
    assert result.stdout.splitlines() == [
        "node-a",
        "  #1  1 device",
        "    0000:81:00.0  8086:1533  type-PCI  CUSTOM_PCI_8086_1533  CUSTOM_PURPLE",
        "",
        "aliases",
        "  nic  legacy",
        "    vendor_id=8086, product_id=1533, live_migratable=false",
        "    asks for CUSTOM_PCI_8086_1533:1  COMPUTE_MANAGED_PCI_DEVICE  !HW_PCI_LIVE_MIGRATABLE",
        # The object does not say that it is not live migratable.
        "    no device that is offered here is one",
    ]


def test_document(agent: AgentHere, check) -> None:
    document = check(HOST, [{"product_id": "154c"}], "--format", "json").json
    assert (
        document["schema"],
        document["report_in_placement"],
        document["errors"],
        document["exit_code"],
    ) == (
        "compute-node-agent/pci-check/1",
        False,
        [],
        0,
    )
    (node,) = document["nodes"]
    assert (node["name"], node["uuid"], node["errors"]) == ("node-a", None, [])
    assert node["specs"] == [
        {"spec": "#1", "devices": ["0000:81:02.1", "0000:81:02.2", "0000:81:02.7"]}
    ]
    by_address = {one["address"]: one for one in node["devices"]}
    assert {address: (one["serves"], one["spec"]) for address, one in by_address.items()} == {
        "0000:81:00.0": (None, None),
        "0000:81:02.0": ("nobody", None),
        "0000:81:02.1": ("guests", "#1"),
        "0000:81:02.2": ("guests", "#1"),
        "0000:81:02.7": ("guests", "#1"),
    }
    first = by_address["0000:81:02.1"]
    assert (first["parent"], first["vf_num"], first["tags"], first["resource_class"]) == (
        "0000:81:02.0",
        0,
        {"remote_managed": "false"},
        "CUSTOM_PCI_8086_154C",
    )
    assert by_address["0000:81:00.0"]["label"] == "slot 3"
    uuid = agent.run("--once", "--format", "json").json["nodes"][0]["uuid"]
    assert agent.run(*CHECK, "--format", "json").json["nodes"][0]["uuid"] == uuid


def test_host_on_which_nothing_is_offered(check) -> None:
    assert (
        check(HOST, []).stdout == "node-a\n  [pci] device_spec is not set; the host has 5 devices\n"
    )
    assert check({"memory_mib": 1}, [{}]).stdout == "node-a\n  #1  no devices\n"


def test_all_errors_of_both_options_are_told_by_every_command(
    agent: AgentHere, http_placement
) -> None:
    specs = ['{"adress": "0000:81:00.0"}', '{"vendor_id": 8086, "devname": "ens1f0"}']
    agent.configure(
        on(
            http_placement,
            "fake.numa",
            {
                "pci": {
                    "device_spec": specs,
                    "alias": ["{", '{"name": "a"}'],
                    "report_in_placement": True,
                }
            },
        )
    )
    wanted = [
        "[pci] device_spec #1: adress is an unknown key",
        "[pci] device_spec #2: vendor_id must be a string of hex digits, not 8086",
        "[pci] device_spec #2: devname cannot be used with [pci] report_in_placement",
        (
            '[pci] alias #1 = "{": no JSON: Expecting property name enclosed in double quotes at '
            "character 2"
        ),
        "[pci] alias #2: vendor_id and product_id are missing",
    ]
    for command in (CHECK, ("config", "check"), ("--once",), ("--once", "--dry-run")):
        assert [one["message"] for one in refused(agent, http_placement, command=command)] == wanted


def test_functions_that_are_not_counted_because_of_their_network_are_told(check) -> None:
    result = check(
        HOST,
        [{"product_id": "154c", "physical_network": "physnet1"}, {"product_id": "1533"}],
        report_in_placement=True,
    )
    lines = [line for line in result.stdout.splitlines() if "type-" in line]
    assert [
        line.endswith("physical_network=physnet1  not counted in Placement") for line in lines
    ] == [True, True, True, False, False]


def test_keys_without_values_are_no_reason_to_refuse_the_configuration_and_are_told(
    agent: AgentHere, check
) -> None:
    specs = [
        [
            {"product_id": "1533", "physical_network": None, "traits": None},
            {"product_id": "154c", "devname": "", "resource_class": ""},
        ]
    ]
    alias = [
        json.dumps(
            {
                "name": "nic",
                "vendor_id": "8086",
                "product_id": "1533",
                "resource_class": "",
                "traits": "",
            }
        )
    ]
    result = check(HOST, specs, alias=alias, report_in_placement=True)
    assert result.code == 0
    assert "0000:81:00.0  8086:1533  type-PCI" in result.stdout
    told = agent.run("config", "check", "--format", "json").json["warnings"]
    assert [one for one in told if "says nothing" in one] == [
        "[pci] device_spec #1.1: traits = null says nothing; remove the key",
        '[pci] device_spec #1.2: devname = "" says nothing; remove the key',
        '[pci] device_spec #1.2: resource_class = "" says nothing; remove the key',
        '[pci] alias #1: resource_class = "" says nothing; remove the key',
        '[pci] alias #1: traits = "" says nothing; remove the key',
    ]


def test_devices_for_one_time_need_the_report_in_placement(
    agent: AgentHere, check, http_placement
) -> None:
    result = check(
        {}, [{"address": "0000:81:00.0", "one_time_use": True}], report_in_placement=False
    )
    assert result.code == 1
    message = the_only(refused(agent, http_placement))["message"]
    assert message == "[pci] device_spec #1: one_time_use = true needs [pci] report_in_placement"
    assert message in result.stdout + result.stderr


def test_what_no_provider_can_stand_for_is_told_as_by_a_start(
    agent: AgentHere, check, http_placement
) -> None:
    second = {**CARD, "address": "0000:82:03.0", "netdev": "ens2f0"}
    first_function = {"address": "0000:82:03.1", "resource_class": "x", "live_migratable": "yes"}
    others = {
        "address": "0000:82:03.*",
        "product_id": "154c",
        "resource_class": "y",
        "one_time_use": False,
    }
    specs = [{"address": "0000:81:02.0"}, first_function, others]
    result = check(
        {"pci": [CARD, second, PLAIN | {"label": "x"}]},
        specs,
        "--format",
        "json",
        report_in_placement=True,
    )
    assert result.code == 1
    (node,) = result.json["nodes"]
    told = [one["message"] for one in node["errors"]]
    assert [one.partition(": provider ")[0] for one in told] == [
        f"[pci] device_spec {place}" for place in ("#1", "#2, #3", "#2, #3", "#3")
    ]
    functions = "0000:82:03.1 (#2) and 0000:82:03.2 (#3)"
    assert "0000:81:02.0 (#1) and 0000:81:02.1 (#1): the first is a physical function" in told[0]
    assert (
        f"{functions}: resource_class is CUSTOM_X of the first and CUSTOM_Y of the second"
        in told[1]
    )
    assert (
        f"{functions}: traits is HW_PCI_LIVE_MIGRATABLE of the first and none of the second"
        in told[2]
    )
    assert (
        "0000:82:03.2 is a virtual function, of which one_time_use = false cannot be said"
        in told[3]
    )
    start = agent.run("--once", "--format", "json")
    assert (start.code, [one["message"] for one in start.json["nodes"][0]["errors"]]) == (1, told)
    assert http_placement.dump()["providers"] == {}
    # It still shows what each object offers, so that one sees why.
    assert [one["devices"] for one in node["specs"]][1] == ["0000:82:03.1"]
    assert not check({"pci": [CARD, second]}, specs, "--format", "json").json["nodes"][0][
        "errors"
    ], "nothing is told to Placement"


def test_object_that_does_not_fit_the_host_stops_a_start(
    agent: AgentHere, check, http_placement
) -> None:
    check(HOST, [])
    assert agent.run("--once").code == 0
    spec = {"address": "0000:81:02.0", "product_id": "1572", "remote_managed": "true"}
    result = check(HOST, [spec])
    assert result.code == 1
    message = (
        "[pci] device_spec #1: 0000:81:02.0 is a physical function, which cannot be remote managed"
    )
    assert f"✗ {message} [config.invalid]" in result.stdout
    assert "give vendor_id 8086 and the product_id of its virtual functions, 154c" in result.stdout
    assert the_only(refused(agent, http_placement))["message"] == message


def test_devices_that_could_not_be_read_are_no_empty_list(check) -> None:
    nodes = [
        {"name": "one", "pci": [], "incomplete": {"pci": "the listing failed"}},
        {"name": "two", "pci": [PLAIN | {"label": "slot 3"}]},
    ]
    result = check({"nodes": nodes}, [{"product_id": "1533"}])
    assert result.code == 3
    assert (
        "✗ node one: its devices could not be read fully: the listing failed [driver.failed]"
        in result.stdout
    )
    assert "0000:81:00.0  8086:1533" in result.stdout
    assert check({"nodes": nodes}, [{"product_id": "1533"}], "--node", "one").code == 1
    assert check({"nodes": nodes}, [{"product_id": "1533"}], "--node", "t*").code == 0


def devices(agent: AgentHere) -> dict[str, str]:
    with open_read_only(agent.store) as store, Records(store).reading() as reading:
        (node,) = reading.nodes().records
        records = reading.load(node.uuid)
    assert records is not None
    return {one.address: one.serves for one in records.devices}


def test_what_is_offered_is_in_the_records_after_an_audit_and_stays_there_while_the_host_does_not_answer(
    agent: AgentHere, check
) -> None:
    def audited(host: Mapping[str, Any]) -> dict[str, str]:
        check(host, [{"product_id": "1572"}])
        assert agent.run("--once").code in (0, 3)
        return devices(agent)

    card = {
        "0000:81:02.0": "guests",
        "0000:81:02.1": "nobody",
        "0000:81:02.2": "nobody",
        "0000:81:02.7": "host",
    }
    assert audited(HOST) == card
    assert audited({"pci": [], "incomplete": {"pci": "the listing failed"}}) == card
    assert audited({"pci": [CARD]}) == {
        "0000:81:02.0": "guests",
        "0000:81:02.1": "nobody",
        "0000:81:02.2": "nobody",
    }
    assert audited({"pci": []}) == {}


def test_what_is_offered_and_can_be_had_by_nobody_is_told(check) -> None:
    gpu = {"address": "0000:3b:00.0", "vendor_id": "10de", "product_id": "1db4"}
    parent = {"parent": gpu["address"], "types": {"nvidia-35": 1}}
    parent["mdevs"] = [{"uuid": "8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01", "type": "nvidia-35"}]
    aliases = [
        {"name": "gpu", "vendor_id": "10de", "product_id": "1db4"},
        {"name": "card", "vendor_id": "8086", "product_id": "1533"},
        {"name": "mine", "resource_class": "CUSTOM_NOBODYS"},
    ]
    told = "no guest can have it while it has mediated devices"
    for mdev in ([parent], []):
        result = check(
            {"pci": [gpu], "mdev": mdev},
            [{"vendor_id": "10de"}],
            report_in_placement=True,
            alias=[json.dumps(alias) for alias in aliases],
        )
        assert (result.code, told in result.stdout) == (0, bool(mdev)), result
        assert result.stdout.count("no device that is offered here is one") == 2
