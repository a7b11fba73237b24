"""The remedies of a managed node: each is carried out in a shell as it is written, and the trouble is
gone then.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.functional.cli.setups import configured, from_file, numa_host, on, uuids_of
from tests.support.consumer_book import Book
from tests.support.html_page import HtmlPage
from tests.support.http_placement import HttpPlacement
from tests.support.shell import Shell, command_of
from tests.support.system import AgentHere
from tests.support.terminal import on_a_terminal

FLOATING = "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11"
MIXED = "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a12"
SIZE = {"MEMORY_MB": 4096, "DISK_GB": 21}


def told(agent: AgentHere, kind: str, *options: str) -> dict[str, Any]:
    """The drift of a kind by consumer, or by provider, as an audit finds it."""
    (node,) = agent.run("--once", "--format", "json", *options).json["nodes"]
    return {
        drift.get("consumer") or drift["provider"]: drift
        for drift in node["drift"]
        if drift["kind"] == kind
    }


def carry_out(agent: AgentHere, command: str, endpoint: str = "") -> str:
    """Run the command of a remedy; what it prints. ``endpoint``: of Placement, for the OpenStack
    client.
    """
    return Shell(agent.folder / "programs", agent, endpoint).run(command)


@pytest.fixture
def host(http_placement: HttpPlacement, tmp_path: Path) -> AgentHere:
    """The host of etc/hosts/numa.yaml: one guest floats, one is pinned by a flavor without mask."""
    agent = numa_host(http_placement, tmp_path / "agent")
    for command in (("--once",), ("guests", "import"), ("--once",)):
        assert agent.run(*command).code == 0
    return agent


def held(placement: HttpPlacement, consumer: str) -> dict[str, dict[str, int]]:
    names = {uuid: name for name, uuid in uuids_of(placement).items()}
    found = placement.other.allocations(consumer)["allocations"]
    return {names[uuid]: one["resources"] for uuid, one in found.items()}


def test_guests_without_allocations_get_those_of_the_remedy(
    host: AgentHere, http_placement: HttpPlacement
) -> None:
    drift = told(host, "missing-allocation")
    assert drift.keys() == {FLOATING, MIXED}
    for found in drift.values():
        carry_out(host, command_of(found["remedy"], "printf"))
    assert held(http_placement, FLOATING) == {"": {"VCPU": 2, "MEMORY_MB": 4096}}
    pinned = held(http_placement, MIXED)
    assert pinned.pop("NUMA0") == {"PCPU": 3}
    assert pinned.pop("") == {"VCPU": 2, **SIZE}
    assert pinned == {}
    assert told(host, "missing-allocation") == told(host, "allocation-mismatch") == {}
    # Tree and remedy are by one rule: what is on record is what Placement counts now.
    (node,) = host.run("--once", "--format", "json").json["nodes"]
    for provider in node["tree"]:
        for name, record in provider["inventories"].items():
            assert record["used"] in (None, record["in_placement"]), (provider["name"], name)


def test_a_command_as_it_is_printed_finds_what_the_run_found(
    host: AgentHere, http_placement: HttpPlacement
) -> None:
    text = host.run("--once", "--store-path", str(host.store)).stdout
    (command,) = (line.strip() for line in text.splitlines() if f"put {FLOATING}" in line)
    assert f"--store-path {host.store} allocation put {FLOATING}" in command
    shell = Shell(host.folder / "programs", host)
    shell.has("agent", f'exec {sys.executable} -m agent "$@"')
    shell.run(command)
    assert held(http_placement, FLOATING) == {"": {"VCPU": 2, "MEMORY_MB": 4096}}


def test_a_command_has_the_options_of_the_run_that_printed_it_and_no_secret(
    host: AgentHere,
) -> None:
    options = ("--host", "compute-2", "--noenabled", "--placement-backend", "embedded")
    options = (*options, "--placement-auth_type", "password")
    secrets = ("--placement-password", "s3cret")
    secrets = (*secrets, "--placement-auth_url", "http://agent:s3cret@localhost:5000/v3")
    run = host.run("--once", "--store-path", str(host.folder / "other"), *options, *secrets)
    (command,) = {
        line.strip() for line in run.stdout.splitlines() if line.endswith(" guests import")
    }
    assert f" {' '.join(options)} guests import" in command
    assert "s3cret" not in run.stdout + run.stderr
    shell = Shell(host.folder / "programs", host)
    shell.has("agent", f'exec {sys.executable} -m agent "$@"')
    assert "moved here" not in shell.run(command)


def test_prose_that_names_the_agent_is_no_command_where_it_begins_a_line(agent: AgentHere) -> None:
    def lines(columns: int) -> list[str]:
        shown = on_a_terminal(agent, "claim", "abort", FLOATING, COLUMNS=str(columns))
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert "no agent listens there" in " ".join(plain.split()), columns
        return [line.strip() for line in plain.splitlines()]

    # Where the line breaks depends on the length of the folder's name.
    assert any(
        line.startswith("agent listens") for columns in range(40, 100) for line in lines(columns)
    )


def test_the_page_shows_the_commands_that_text_shows_and_json_the_bare_ones(
    host: AgentHere,
) -> None:
    whole = f"agent --config-file {host.config_file} allocation put {FLOATING} "
    assert whole in host.run("--once", "--report", "nodes.html").stdout
    page = HtmlPage((host.folder / "nodes.html").read_text(encoding="utf-8"))
    assert any(whole in text for text in page.texts)
    remedy = told(host, "missing-allocation")[FLOATING]["remedy"]
    assert f"| agent allocation put {FLOATING} " in remedy


def test_the_page_shows_how_placement_is_asked_and_then_has_its_figures(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = numa_host(http_placement, tmp_path / "agent")
    file = agent.folder / "nodes.html"
    assert agent.run("--once", "--dry-run", "--report", file.name).code == 0
    (ask,) = (text for text in HtmlPage(file.read_text()).texts if "--with-usages" in text)
    assert ask.startswith(f"agent --config-file {agent.config_file} --once ")
    carry_out(agent, ask.replace("FILE", file.name))
    texts = HtmlPage(file.read_text()).texts
    assert "in Placement" in texts
    assert not [text for text in texts if "--with-usages" in text]


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        ({"": {"VCPU": 4, **SIZE}}, "VCPU 4 instead of PCPU 3, VCPU 2"),
        ({"": {"VCPU": 7, "MEMORY_MB": 1024}}, "VCPU 7 instead of PCPU 3, VCPU 2"),
        (
            {"": {"VCPU": 2, **SIZE}, "NUMA1": {"PCPU": 2}},
            "PCPU 2, VCPU 2 instead of PCPU 3, VCPU 2",
        ),
        ({"": {"DISK_GB": 1}}, "PCPU 0, VCPU 0 instead of PCPU 3, VCPU 2"),
    ],
)
def test_a_wrong_allocation_is_corrected_by_the_commands_of_the_remedy(
    host: AgentHere, http_placement: HttpPlacement, wrong: dict[str, Any], detail: str
) -> None:
    uuids = uuids_of(http_placement)
    http_placement.other.claim({uuids[name]: some for name, some in wrong.items()}, MIXED)
    drift = told(host, "allocation-mismatch")[MIXED]
    assert detail in drift["detail"]
    carry_out(host, command_of(drift["remedy"], "agent allocation"))
    right = held(http_placement, MIXED)
    assert right["NUMA0"] == {"PCPU": 3}
    assert right[""] == {"VCPU": 2, **SIZE}
    assert told(host, "allocation-mismatch") == {}


def test_what_a_flavor_sizes_itself_is_written_by_the_command_of_the_remedy_from_a_file(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = numa_host(http_placement, tmp_path / "agent")
    file = agent.folder / "host.yaml"
    policy = "hw:cpu_policy: mixed"
    file.write_text(file.read_text().replace(policy, f"{policy}, 'resources:PCPU': '3'"))
    for command in (("--once",), ("guests", "import"), ("--once",)):
        assert agent.run(*command).code == 0
    remedy = told(agent, "missing-allocation")[MIXED]["remedy"]
    shell = Shell(agent.folder / "programs", agent)
    shell.run(command_of(remedy, "printf").partition("; ")[0])
    file, uuids = agent.folder / "FILE", uuids_of(http_placement)
    record = json.loads(file.read_text())
    assert record["allocations"] == {uuids["NUMA0"]: {"PCPU": 3}, uuids[""]: SIZE}
    record["allocations"][uuids[""]]["VCPU"] = 2
    file.write_text(json.dumps(record))
    shell.run(command_of(remedy, "agent allocation put"))
    assert MIXED not in told(agent, "missing-allocation")
    assert told(agent, "allocation-mismatch") == {}


def test_a_guest_that_is_gone_for_good_is_forgotten_by_the_command_of_the_remedy(
    host: AgentHere,
) -> None:
    file = host.folder / "host.yaml"
    text = file.read_text()
    begin, end = text.index(f"  - uuid: {FLOATING}"), text.index("  # A guest that does not float")
    file.write_text(text[:begin] + text[end:])
    drift = told(host, "missing-domain")[FLOATING]
    carry_out(host, command_of(drift["remedy"], "agent guests forget"))
    assert FLOATING not in told(host, "missing-domain")
    assert FLOATING not in told(host, "missing-allocation")


def test_what_a_guest_holds_of_a_card_without_having_it_is_removed_by_the_command_of_the_remedy(
    host: AgentHere, http_placement: HttpPlacement
) -> None:
    host.config_file.write_text(
        host.config_file.read_text().replace("[pci]", "[pci]\nreport_in_placement = true")
    )
    assert host.run("--once").code == 0
    (card,) = (uuid for name, uuid in uuids_of(http_placement).items() if name == "0000:18:00.0")
    root = uuids_of(http_placement)[""]
    device_class, *_ = http_placement.other.inventory(card)
    own = {root: {"VCPU": 2, "MEMORY_MB": 4096}}
    http_placement.other.claim({**own, card: {device_class: 1}}, FLOATING)
    drift = told(host, "allocation-mismatch")[FLOATING]
    assert f"holds 1 {device_class} of node-a_0000:18:00.0 instead of 0" in drift["detail"]
    carry_out(host, command_of(drift["remedy"], "agent allocation remove"))
    assert held(http_placement, FLOATING) == {"": own[root]}
    assert told(host, "allocation-mismatch") == {}


def test_a_host_that_lost_memory_bears_the_ratio_of_the_remedy(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    described: dict[str, Any] = {
        "uuid": "5f9c2a34-7d1e-4a8b-9c46-00000000e0f7",
        "cpu": {"online": "0-7"},
        "memory_mib": 16384,
        "guests": [
            {"uuid": FLOATING, "name": "one", "vcpus": 2, "memory_mib": 6000},
            {"uuid": MIXED, "name": "two", "vcpus": 2, "memory_mib": 6000},
        ],
    }
    agent = from_file(http_placement, tmp_path / "agent", described)
    for command in (("--once",), ("guests", "import"), ("--once",)):
        assert agent.run(*command).code == 0
    assert told(agent, "overcommitted") == {}
    (agent.folder / "host.yaml").write_text(json.dumps({**described, "memory_mib": 10000}))
    (drift,) = told(agent, "overcommitted").values()
    assert "12512 MiB of memory are promised, of 10000" in drift["detail"]
    (option, ratio) = re.findall(r"set \[DEFAULT\] (\w+) = ([\d.]+)$", drift["remedy"])[0]
    assert told(agent, "overcommitted", f"--{option}", str(float(ratio) - 0.01))
    assert told(agent, "overcommitted", f"--{option}", ratio) == {}


def test_a_host_that_somebody_disabled_is_enabled_by_the_command_of_the_remedy(
    host: AgentHere, http_placement: HttpPlacement
) -> None:
    root, other = uuids_of(http_placement)[""], http_placement.other
    there = other.traits(root)
    other.set_traits(root, {*there, "COMPUTE_STATUS_DISABLED"})
    (drift,) = told(host, "disabled", "--enabled").values()
    carry_out(host, drift["remedy"], http_placement.url)
    assert other.traits(root) == there
    assert told(host, "disabled", "--enabled") == {}


def test_who_holds_what_a_provider_has_no_more_is_listed_by_the_command_of_the_remedy(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    described = {
        "uuid": "5f9c2a34-7d1e-4a8b-9c46-00000000e0f9",
        "cpu": {"online": "0-7"},
        "memory_mib": 16384,
    }
    agent = from_file(http_placement, tmp_path / "agent", described)
    assert agent.run("--once").code == 0
    root = uuids_of(http_placement)[""]
    holders = [http_placement.other.claim({root: {"VCPU": 8}}) for _ in range(3)]
    (agent.folder / "host.yaml").write_text(json.dumps({**described, "cpu": {"online": "0-3"}}))
    drift = told(agent, "overcommitted")[root]
    assert drift["detail"] == "over-committed VCPU 24 of 16 on node-a"
    assert "move consumers of 8 away" in drift["remedy"]
    listed = carry_out(agent, command_of(drift["remedy"], "openstack"), http_placement.url)
    assert all(holder in listed for holder in holders)


def test_pinned_guests_with_too_few_cpus_in_placement_are_dedicated_after_the_remedy(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    described: dict[str, Any] = {
        "uuid": "5f9c2a34-7d1e-4a8b-9c46-00000000e0f8",
        "cells": [{"id": 0, "cpus": "0-7", "memory_mib": 16384}],
        "guests": [
            {
                "uuid": MIXED,
                "name": "pinned",
                "cells": [
                    {
                        "host_cell": 0,
                        "memory_mib": 1024,
                        "dedicated": "0-2",
                        "pins": {"0": 2, "1": 3, "2": 4},
                    }
                ],
            }
        ],
    }
    agent = from_file(http_placement, tmp_path / "agent", described)
    for command in (("--once",), ("guests", "import")):
        assert agent.run(*command).code == 0
    root = uuids_of(http_placement)[""]
    http_placement.other.claim({root: {"VCPU": 1, "MEMORY_MB": 1024}}, MIXED)
    sets = ("--compute-cpu_dedicated_set", "2-7", "--compute-cpu_shared_set", "0-1")
    (error,) = agent.run("--once", *sets, "--format", "json").json["nodes"][0]["errors"]
    assert "is pinned to 3 CPUs but holds only 1 VCPU" in error["message"]
    command, _, after = error["remedy"].partition("; then: ")
    assert after == "agent reload"
    carry_out(agent, command)
    assert agent.run("--once", *sets).code == 0
    found = held(http_placement, MIXED)
    assert sum(some.get("PCPU", 0) for some in found.values()) == 3
    assert not any("VCPU" in some for some in found.values())


def test_what_a_migration_that_is_over_still_holds_goes_to_its_guest_by_the_remedy(
    host: AgentHere, http_placement: HttpPlacement
) -> None:
    root = uuids_of(http_placement)[""]
    migration = str(uuid4())
    Book(host.store, root, "node-a").migration(migration, FLOATING, status="cancelled")
    http_placement.other.claim({root: {"VCPU": 2, "MEMORY_MB": 4096}}, migration)
    drift = told(host, "missing-allocation")[FLOATING]
    assert f"its migration {migration}, which is over (cancelled), still holds" in drift["detail"]
    carry_out(host, command_of(drift["remedy"], "agent allocation remove-tree"))
    carry_out(host, command_of(drift["remedy"], "printf"))
    assert held(http_placement, migration) == {}
    assert held(http_placement, FLOATING) == {"": {"VCPU": 2, "MEMORY_MB": 4096}}
    assert FLOATING not in told(host, "missing-allocation")


CARD, FUNCTIONS = "0000:18:00.0", ("0000:18:00.1", "0000:18:00.2")


def has_functions(*functions: str, device: str = "") -> dict[str, Any]:
    """A host with a card that has these functions, and a guest that may have one of them."""
    one = {"uuid": FLOATING, "name": "one", "vcpus": 1, "memory_mib": 512}
    ids = {"vendor_id": "8086", "class_code": "0x020000"}
    card = {"address": CARD, "product_id": "1528", "max_virtual_functions": 2, **ids}
    more = {"product_id": "1515", "physical_function": CARD, **ids}
    return {
        "uuid": "5f9c2a34-7d1e-4a8b-9c46-00000000e0f6",
        "cpu": {"online": "0-7"},
        "memory_mib": 16384,
        "pci": [card, *({"address": address, **more} for address in functions)],
        "guests": [{**one, "devices": [device]} if device else one],
    }


@pytest.fixture
def card_host(http_placement: HttpPlacement, tmp_path: Path) -> AgentHere:
    """A host whose card is in Placement with its two functions; its guest has the first one."""
    agent = AgentHere(tmp_path / "agent")
    has_card(agent, http_placement, *FUNCTIONS)
    for command in (("--once",), ("guests", "import")):
        assert agent.run(*command).code == 0
    return agent


def has_card(agent: AgentHere, placement: HttpPlacement, *functions: str) -> None:
    spec = {"vendor_id": "8086", "product_id": "1515"}
    pci = {"device_spec": json.dumps(spec), "report_in_placement": True}
    configured(agent, placement, has_functions(*functions, device=FUNCTIONS[0]), pci=pci)


def test_what_is_held_of_a_card_that_lost_a_device_is_given_back_by_the_command_of_the_remedy(
    card_host: AgentHere, http_placement: HttpPlacement
) -> None:
    uuids, other, stranger = uuids_of(http_placement), http_placement.other, str(uuid4())
    (card_class,) = other.inventory(uuids[CARD])
    other.claim({uuids[CARD]: {card_class: 2}}, stranger)
    has_card(card_host, http_placement, FUNCTIONS[0])
    drift = told(card_host, "held-device")[uuids[CARD]]
    assert f"2 of {card_class} are allocated" in drift["detail"]
    carry_out(card_host, command_of(drift["remedy"], "agent allocation remove"))
    assert told(card_host, "held-device") == {}
    assert other.inventory(uuids[CARD])[card_class]["total"] == 1


def test_more_of_a_card_than_a_guest_has_is_given_back_by_the_command_of_the_remedy(
    card_host: AgentHere, http_placement: HttpPlacement
) -> None:
    uuids, other = uuids_of(http_placement), http_placement.other
    (card_class,) = other.inventory(uuids[CARD])
    own = {uuids[""]: {"VCPU": 1, "MEMORY_MB": 512}}
    other.claim({**own, uuids[CARD]: {card_class: 2}}, FLOATING)
    drift = told(card_host, "allocation-mismatch")[FLOATING]
    assert "holds 2" in drift["detail"]
    carry_out(card_host, command_of(drift["remedy"], "agent allocation remove"))
    assert held(http_placement, FLOATING)[CARD] == {card_class: 1}
    assert told(card_host, "allocation-mismatch") == {}


def test_a_card_that_is_gone_and_that_somebody_else_marked_goes_by_the_command_of_the_remedy(
    card_host: AgentHere, http_placement: HttpPlacement
) -> None:
    uuids, other = uuids_of(http_placement), http_placement.other
    other.set_traits(uuids[CARD], {*other.traits(uuids[CARD]), "CUSTOM_THEIRS"})
    bare = {**has_functions(), "guests": []}
    configured(card_host, http_placement, bare, pci={"report_in_placement": True})
    assert card_host.run("--once").code == 0
    assert card_host.run("guests", "forget", FLOATING).code == 0
    drift = told(card_host, "held-device")[uuids[CARD]]
    assert "somebody else gave it CUSTOM_THEIRS" in drift["detail"]
    carry_out(card_host, command_of(drift["remedy"], "openstack"), http_placement.url)
    assert CARD not in uuids_of(http_placement)
    assert told(card_host, "held-device") == {}


def other_agent(agent: AgentHere, placement: HttpPlacement, folder: Path, host: str) -> AgentHere:
    """Another agent with a store of its own, called ``host``, and the host file of ``agent``."""
    other = AgentHere(folder)
    there = {"fake": {"host_file": agent.folder / "host.yaml"}, "DEFAULT": {"host": host}}
    other.configure(on(placement, "fake.file", there))
    return other


def errors_of(agent: AgentHere) -> list[Any]:
    return list(agent.run("--once", "--format", "json").json["nodes"][0]["errors"])


def test_a_node_that_another_agent_has_marked_is_taken_over_by_the_command_of_the_remedy(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = from_file(http_placement, tmp_path / "agent", {**has_functions(), "name": "node-a"})
    assert agent.run("--once").code == 0
    other = other_agent(agent, http_placement, tmp_path / "other", "node-b")
    (error,) = errors_of(other)
    assert error["code"] == "node.elsewhere"
    command = command_of(error["remedy"], "agent ")
    options = f"agent --config-file {other.config_file} "
    assert command.replace("agent ", options, 1) in other.run("--once").stdout
    carry_out(other, command)
    assert errors_of(other) == []
    assert [one["code"] for one in errors_of(agent)] == ["node.elsewhere"]


def test_a_host_with_the_identity_of_another_gets_its_own_by_the_command_of_the_remedy(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    described = {key: value for key, value in has_functions().items() if key != "uuid"}
    agent = from_file(http_placement, tmp_path / "agent", described)
    assert agent.run("--once").code == 0
    copied = uuids_of(http_placement)[""]
    other = other_agent(agent, http_placement, tmp_path / "other", "node-b")
    assert other.run("identity", "set", copied).code == 0
    (error,) = errors_of(other)
    carry_out(other, command_of(error["remedy"], "agent identity set"))
    assert errors_of(other) == errors_of(agent) == []
    names = {one["name"] for one in http_placement.dump()["providers"].values()}
    assert {"node-a", "node-b"} <= names
