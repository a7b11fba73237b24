"""A host that runs guests before any agent: what a dry run shows, what is imported, and that it is
kept for them from then on.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.api.client import ApiClient, ApiProblem
from tests.functional.cli.setups import host_file, on, ready
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.service_manager import Service, until
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentCommand, AgentHere
from tests.support.tracking import F1, FN, guest, uuid_of

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000e001"
GPU, MDEV = "0000:3b:00.0", "8a1f2c60-53b7-4c1e-9a43-0f6f2f1f9d01"
SMALL = {"id": "7", "name": "m1.small", "vcpus": 1, "memory_mb": 2048, "root_gb": 20}
FLOATS, PINNED, WITH_GPU, WITH_MDEV, ODD = (
    guest(name) for name in ("floats", "pinned", "with-gpu", "with-mdev", "odd")
)
HOST: Mapping[str, Any] = {
    "uuid": ROOT,
    "disk_gib": 500,
    "cells": [
        {"id": one, "cpus": f"{8 * one}-{8 * one + 7}", "memory_mib": 16384} for one in range(2)
    ],
    "pci": [{"address": GPU, "vendor_id": "10de", "product_id": "1db4", "numa_node": 0}],
    "mdev": [
        {
            "parent": "0000:06:00.0",
            "types": {"nvidia-35": 3},
            "mdevs": [{"uuid": MDEV, "type": "nvidia-35"}],
        }
    ],
    "guests": [
        {
            "uuid": FLOATS,
            "name": "floats",
            "memory_mib": 2048,
            "origin": {"flavor": SMALL, "project_id": "project", "user_id": "user"},
        },
        {
            "uuid": PINNED,
            "name": "pinned",
            "cells": [
                {"host_cell": 0, "memory_mib": 1024, "dedicated": "0-1", "pins": {"0": 4, "1": 5}},
                {
                    "host_cell": 1,
                    "memory_mib": 1024,
                    "dedicated": "2-3",
                    "pins": {"2": 12, "3": 13},
                },
            ],
        },
        {"uuid": WITH_GPU, "name": "with-gpu", "memory_mib": 512, "vcpus": 1, "devices": [GPU]},
        {
            "uuid": WITH_MDEV,
            "name": "with-mdev",
            "memory_mib": 512,
            "vcpus": 1,
            "mdevs": [MDEV],
            "state": "paused",
        },
        {
            "uuid": ODD,
            "name": "odd",
            "state": "stopped",
            "devices": [GPU],
            "cells": [
                {"host_cell": 0, "memory_mib": 1024, "dedicated": "0-1", "pins": {"0": 5, "1": 6}},
            ],
        },
    ],
}
OUTCOMES = {
    FLOATS: "imported",
    PINNED: "imported",
    WITH_GPU: "imported",
    WITH_MDEV: "imported",
    ODD: "refused",
}
SECTIONS = {
    "DEFAULT": {"update_resources_interval": -1, "reserved_host_memory_mb": 512},
    "compute": {"cpu_shared_set": "0-3,8-11", "cpu_dedicated_set": "4-7,12-15"},
    "pci": {
        "device_spec": f'{{"address": "{GPU}"}}',
        "alias": '{"name": "gpu", "vendor_id": "10de", "product_id": "1db4"}',
    },
    "devices": {"enabled_mdev_types": "nvidia-35"},
}
# 512 of the host; 2048 of the flavor, 2048, 512 and 512; 1, 4, 1 and 1 CPUs; the flavor's disk.
IMPORTED = {
    "memory_mb_used": 5632,
    "vcpus_used": 7,
    "disk_mb_used": 20480,
    "instances": 4,
    "claims": 4,
    "migrations": 0,
}


def configured(
    agent: AgentCommand, placement: HttpPlacement, host: Mapping[str, Any] = HOST, **compute: str
) -> None:
    """Have ``agent`` be the agent of the host."""
    log = {"DEFAULT": {"log_file": agent.folder / "agent.log"}}
    agent.configure(
        on(
            placement,
            "fake.file",
            {"fake": {"host_file": host_file(agent, host)}},
            SECTIONS,
            log,
            {"compute": compute},
        )
    )


@pytest.fixture
def agent(http_placement: HttpPlacement, tmp_path: Path) -> AgentHere:
    """The agent of the host, of which no daemon runs."""
    found = AgentHere(tmp_path / "agent")
    configured(found, http_placement)
    return found


def outcomes(document: Any) -> dict[str, str]:
    (node,) = document["nodes"]
    return {one["uuid"]: one["outcome"] for one in node["guests"]}


def test_a_dry_run_shows_what_would_be_and_writes_nothing(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    result = agent.run("guests", "import", "--dry-run", "--format", "json")
    assert (result.code, result.json["exit_code"], result.json["schema"]) == (
        3,
        3,
        "compute-node-agent/guests-import/1",
    )
    assert (result.json["dry_run"], result.json["source"], result.json["nodes"][0]["name"]) == (
        True,
        "driver",
        "node-a",
    )
    assert outcomes(result.json) == {
        uuid: "importable" if one == "imported" else one for uuid, one in OUTCOMES.items()
    }
    assert not agent.store.exists()
    assert http_placement.dump()["providers"] == {}


def test_as_text(agent: AgentHere) -> None:
    result = agent.run("guests", "import", "--dry-run")
    assert result.code == 3
    lines = result.stdout.splitlines()
    assert f"  pinned  {PINNED}  not on record" in lines
    assert (
        "    running · 4 CPUs · 2048 MiB memory · cell 0 pinned to 4-5 · cell 1 pinned to 12-13"
        in lines
    )
    assert f"    ✗ cell 0: CPUs [5] are pinned already, by guest pinned ({PINNED})" in lines
    assert f"    ✗ it has device {GPU}, which belongs to guest with-gpu ({WITH_GPU})" in lines
    assert (
        lines[-1] == "5 guests, 4 not on record, 1 cannot be imported; dry run: nothing was written"
    )
    assert "\x1b" not in result.stdout


def test_what_is_imported_without_a_daemon_is_there_when_it_starts(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    result = agent.run("guests", "import", "--format", "json")
    assert (result.code, outcomes(result.json)) == (3, OUTCOMES)
    # Placement was not asked for anything.
    assert http_placement.dump()["providers"] == {}
    again = agent.run("guests", "import", "--format", "json")
    assert (again.code, set(outcomes(again.json).values())) == (1, {"known", "refused"})
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    assert (node["state"], node["usage"]) == ("changed", IMPORTED)
    assert {one["consumer"] for one in node["drift"] if one["kind"] == "unknown-domain"} == {ODD}
    shown = agent.run("claims", "--format", "json").json["claims"]
    assert {
        one["instance"]: sorted(cpu for cell in one["cells"] for cpu in cell["pins"].values())
        for one in shown
        if one["cells"]
    } == {PINNED: [4, 5, 12, 13]}
    assert {
        one["instance"]: [device["address"] for device in one["devices"]]
        for one in shown
        if one["devices"]
    } == {WITH_GPU: [GPU]}


def test_with_what_the_scheduler_allocated_to_them_all_is_in_sync(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    assert agent.run("--once").code == 0
    assert agent.run("guests", "import").code == 3
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    drift = {(one["kind"], one["consumer"]): one["remedy"] for one in node["drift"]}
    assert drift.keys() == {
        ("unknown-domain", ODD),
        *(("missing-allocation", one) for one in (FLOATS, PINNED, WITH_GPU, WITH_MDEV)),
    }
    providers = {
        one["name"].removeprefix("node-a"): uuid
        for uuid, one in http_placement.dump()["providers"].items()
    }
    rest = {ROOT: {"VCPU": 1, "MEMORY_MB": 512}}
    # The commands that are named give each what it has.
    file = agent.folder / "allocation.json"
    for (kind, _), remedy in drift.items():
        if kind == "missing-allocation":
            _, _, text, _, _, _, command, consumer, *_ = shlex.split(remedy.partition(": ")[2])
            file.write_text(text)
            assert agent.run("allocation", command, consumer, str(file)).code == 0
    for consumer, held in {
        FLOATS: {ROOT: {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}},
        PINNED: {
            ROOT: {"MEMORY_MB": 2048},
            providers["_NUMA0"]: {"PCPU": 2},
            providers["_NUMA1"]: {"PCPU": 2},
        },
        WITH_GPU: rest,
        WITH_MDEV: {**rest, providers["_pci_0000_06_00_0"]: {"VGPU": 1}},
    }.items():
        found = http_placement.other.allocations(consumer)["allocations"]
        assert {uuid: one["resources"] for uuid, one in found.items()} == held
    (node,) = agent.run("--once", "--reread", "--format", "json").json["nodes"]
    assert (node["state"], [(one["kind"], one["consumer"]) for one in node["drift"]]) == (
        "in-sync",
        [("unknown-domain", ODD)],
    )


def test_the_command_that_monitoring_leaves_out_is_in_the_report_to_be_pasted_into_a_shell(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    configured(agent, http_placement, {**HOST, "guests": HOST["guests"][:1]})
    assert agent.run("--once").code == 0
    assert agent.run("guests", "import").code == 0
    audit = ("--once", "--reread")
    told = agent.run(*audit, "--format", "nagios")
    assert told.code == 1
    assert told.stdout.endswith("(the report without --format nagios has the command)\n")
    # What is indented further than the words before it is a command.
    lines = agent.run(*audit).stdout.splitlines()
    (begins,) = [at for at, line in enumerate(lines) if "missing-allocation" in line]
    assert lines[begins + 1 : begins + 4 : 2] == [
        "  → give it its allocation again:",
        "    or if it is gone for good:",
    ]
    words = (lines[begins + 2], lines[begins + 4])
    assert all(line.startswith("      ") for line in words)
    program = agent.folder / "agent"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m agent --config-file {agent.config_file} "$@"\n'
    )
    program.chmod(0o755)
    subprocess.run(
        ["bash", "-ec", words[0]],
        env={"PATH": f"{agent.folder}:{os.environ['PATH']}", "PYTHONPATH": str(CHECKOUT)},
        check=True,
    )
    assert agent.run(*audit, "--format", "nagios").code == 0


def test_once_placement_knows_the_devices_their_guests_hold_them_there(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    agent.run("guests", "import")
    agent.run("--once")
    http_placement.other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 512}}, WITH_GPU)
    result = agent.run("--once", "--pci-report_in_placement", "--format", "json")
    assert (result.code, result.json["nodes"][0]["state"]) == (0, "changed")
    held = http_placement.other.allocations(WITH_GPU)["allocations"].values()
    assert {name: amount for one in held for name, amount in one["resources"].items()} == {
        "VCPU": 1,
        "MEMORY_MB": 512,
        "CUSTOM_PCI_10DE_1DB4": 1,
    }


def test_an_import_without_a_contradiction_ends_well(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    configured(agent, http_placement, {**HOST, "guests": HOST["guests"][:4]})
    assert agent.run("guests", "import", "--dry-run", "--detailed-exitcode").code == 2
    done = agent.run("guests", "import", "--detailed-exitcode")
    assert (done.code, done.stdout.splitlines()[-1]) == (2, "4 guests, 4 imported")
    again = agent.run("guests", "import", "--detailed-exitcode", "--node", "node-*")
    assert (again.code, again.stdout.splitlines()[-1]) == (0, "4 guests, 4 on record")
    shown = agent.run("guests", "list")
    assert (shown.code, shown.stdout.splitlines()[0]) == (
        0,
        "the daemon was not asked; this is what the driver reports",
    )


def test_sets_that_lack_what_imported_guests_have_are_drift(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    agent.run("guests", "import")
    configured(agent, http_placement, cpu_dedicated_set="5-7,12-15")
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    assert node["errors"] == []
    (told,) = [one["detail"] for one in node["drift"] if one["kind"] == "guest-conflict"]
    assert f"lacks CPUs 4, to which guest pinned ({PINNED}) is pinned" in told


@pytest.mark.long
def test_beside_a_daemon_that_observes_guests_are_shown_and_not_imported(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    here = AgentHere(tmp_path / "agent")
    configured(here, http_placement)
    assert here.run("--once").code == 0
    with here.config_file.open("a") as config:
        config.write("[DEFAULT]\nmode = observe\n")
    service, client = Service(here), ApiClient(here.socket)
    with service.running():
        until(lambda: here.socket.exists() and ready(client), lambda: service)
        for command in (("list",), ("import", "--dry-run")):
            shown = here.run("guests", *command, "--format", "json")
            assert (shown.code, shown.json["source"]) == (
                0 if command[-1] == "list" else 3,
                "driver",
            )
            assert outcomes(shown.json).keys() == OUTCOMES.keys()
        refused = here.run("guests", "import", "--format", "json")
        assert (refused.code, refused.json["errors"][0]["code"]) == (1, "agent.observes-only")
        assert service.stop()[0] == 0


def test_a_node_that_there_is_not_and_a_driver_that_tells_nothing(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    assert agent.run("guests", "import", "--node", "nobody").code == 1
    configured(
        agent, http_placement, {key: value for key, value in HOST.items() if key != "guests"}
    )
    for command in ("list", "import"):
        result = agent.run("guests", command, "--format", "json")
        assert (result.code, [one["code"] for one in result.json["nodes"][0]["errors"]]) == (
            1,
            ["node.guests-untold"],
        )
        assert "known by their claims" in result.json["nodes"][0]["errors"][0]["remedy"]


@pytest.mark.long
def test_through_a_daemon_they_are_imported_and_nobody_else_gets_what_they_have(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    here = AgentHere(tmp_path / "agent")
    configured(here, http_placement, {**HOST, "guests": HOST["guests"][:1]})
    service, client = Service(here), ApiClient(here.socket)
    with service.running():
        until(lambda: here.socket.exists() and ready(client), lambda: service)
        # The import looks at the host once more.
        host_file(here, HOST)
        result = here.run("guests", "import", "--format", "json")
        assert (result.code, result.json["source"], outcomes(result.json)) == (
            3,
            "daemon",
            OUTCOMES,
        )
        assert client.node(ROOT)["records"]["usage"] == IMPORTED
        # Without being asked, because something has changed.
        until(lambda: client.node(ROOT)["usage"] == IMPORTED, lambda: service)
        for name in ("n1", "n2"):
            claimed = client.create_claim(_claim(name, flavor_body(FN)))
            assert not {4, 5, 12, 13} & {*claimed["cells"][0]["pins"].values()}
        for flavor in (
            flavor_body(FN),
            {**flavor_body(F1), "extra_specs": {"pci_passthrough:alias": "gpu:1"}},
        ):
            with pytest.raises(ApiProblem, match="resources unavailable"):
                client.create_claim(_claim("n3", flavor))
        service.kill()
    with service.running():
        until(lambda: ready(client), lambda: service)
        listed = here.run("guests", "list", "--format", "json")
        assert (listed.code, outcomes(listed.json)) == (
            0,
            {uuid: "refused" if uuid == ODD else "known" for uuid in OUTCOMES},
        )
        assert client.node(ROOT)["records"]["usage"]["memory_mb_used"] == 5632 + 2 * FN.memory_mb
        assert service.stop()[0] == 0
    assert "Traceback" not in service.log


def _claim(name: str, flavor: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": uuid_of(f"claim-{name}"),
        "node": ROOT,
        "instance": instance_body(name),
        "flavor": flavor,
    }


# --- guests that are gone -------------------------------------------------------------------------

OFF = guest("off")
TWO: Mapping[str, Any] = {
    **HOST,
    "guests": [
        HOST["guests"][0],
        {"uuid": OFF, "name": "off", "state": "stopped", "memory_mib": 1024, "vcpus": 1},
    ],
}


def missing(agent: AgentHere) -> dict[str, str]:
    """The remedies of guests that the hypervisor does not show, by guest."""
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    return {
        one["consumer"]: one["remedy"] for one in node["drift"] if one["kind"] == "missing-domain"
    }


@pytest.mark.long
def test_a_guest_that_is_gone_is_told_whether_it_ran_or_not_and_forgotten_as_the_remedy_says(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    configured(agent, http_placement, TWO)
    assert (agent.run("--once").code, agent.run("guests", "import").code) == (0, 0)
    elsewhere = http_placement.other.create_provider("another host")
    http_placement.other.set_inventory(elsewhere, {"VCPU": 8})
    http_placement.other.claim(
        {ROOT: {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}, elsewhere: {"VCPU": 1}}, FLOATS
    )
    http_placement.other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 1024}}, OFF)
    assert missing(agent) == {}
    shown = agent.run("guests", "forget", OFF)
    assert (shown.code, f"the hypervisor of node node-a shows instance {OFF}" in shown.stderr) == (
        1,
        True,
    )
    host_file(agent, {**TWO, "guests": []})
    assert missing(agent) == {
        uuid: f"bring it back, or if it is gone for good: agent guests forget {uuid}"
        for uuid in (FLOATS, OFF)
    }
    text = agent.run("guests", "forget", OFF.upper())
    assert (text.code, text.stdout) == (
        0,
        (
            f"instance {OFF} is forgotten: all that it had here is given back, in Placement with "
            "the next audit\n"
        ),
    )
    document = agent.run("guests", "forget", FLOATS, "--format", "json").json
    assert (document["schema"], document["instance"]["deleted"], document["instance"]["host"]) == (
        "compute-node-agent/instance/1",
        True,
        None,
    )
    assert agent.run("guests", "forget", FLOATS).code == 0, "again is harmless"
    assert missing(agent) == {}
    assert agent.run("claims", "--format", "json").json["claims"] == []
    # Of what it holds elsewhere nobody here knows whether that is over.
    assert http_placement.other.allocations(FLOATS)["allocations"].keys() == {elsewhere}
    assert http_placement.other.allocations(OFF)["allocations"] == {}


def test_who_cannot_be_forgotten(agent: AgentHere, http_placement: HttpPlacement) -> None:
    configured(agent, http_placement, TWO)
    assert agent.run("guests", "import").code == 0
    unknown = agent.run("guests", "forget", guest("nobody"))
    assert (unknown.code, "no record of that instance" in unknown.stderr) == (1, True)
    assert "nobody is no uuid" in agent.run("guests", "forget", "nobody").stderr
    host_file(agent, {**TWO, "guests": [], "incomplete": {"domains": "the listing broke off"}})
    untold = agent.run("guests", "forget", OFF)
    assert (
        untold.code,
        "not all guests of node node-a are known: the listing broke off" in untold.stderr,
    ) == (1, True)


@pytest.mark.long
def test_a_daemon_looks_at_the_hypervisor_before_it_forgets_a_guest(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    here = AgentHere(tmp_path / "agent")
    configured(here, http_placement, TWO)
    assert here.run("guests", "import").code == 0
    service, client = Service(here), ApiClient(here.socket)
    with service.running():
        until(lambda: here.socket.exists() and ready(client), lambda: service)
        assert here.run("guests", "forget", OFF).code == 1
        host_file(here, {**TWO, "guests": TWO["guests"][:1]})
        assert here.run("guests", "forget", OFF).code == 0
        assert {one["instance"] for one in client.claims()} == {FLOATS}
        host_file(here, TWO)
        assert here.run("guests", "import").code == 1
        assert here.run("guests", "import", "--again", OFF).code == 0
        assert {one["instance"] for one in client.claims()} == {FLOATS, OFF}
        service.kill()


def test_a_guest_that_was_forgotten_by_mistake_is_recorded_again_as_the_remedies_say(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    configured(agent, http_placement, TWO)
    assert (agent.run("--once").code, agent.run("guests", "import").code) == (0, 0)
    host_file(agent, {**TWO, "guests": TWO["guests"][1:]})
    assert agent.run("guests", "forget", FLOATS).code == 0
    host_file(agent, TWO)
    refused, told = agent.run("guests", "import"), agent.run("--once")
    for result in (refused, told):
        assert "its instance is deleted" in result.stdout, result
        assert f"virsh destroy {FLOATS} &&\n" in result.stdout
        (line,) = [line for line in result.stdout.splitlines() if "--again" in line]
        command = shlex.split(line)[-4:]
        assert command == ["guests", "import", "--again", FLOATS]
    assert "1 not on record" in agent.run(*command, "--dry-run").stdout
    assert agent.run(*command).code == 0
    (node,) = agent.run("--once", "--format", "json").json["nodes"]
    assert ("unknown-domain", FLOATS) not in {
        (one["kind"], one["consumer"]) for one in node["drift"]
    }
    assert node["usage"]["instances"] == 2
    assert "x is no uuid" in agent.run("guests", "import", "--again", "x").stderr
    mistyped = ("guests", "import", "--again", FLOATS.replace(FLOATS[0], "f"))
    for options in ((), ("--dry-run",)):
        unknown = agent.run(*mistyped, *options)
        # Beside those that are shown.
        assert (unknown.code, FLOATS in unknown.stdout) == (1, True)
        assert "no node shows a guest f" in unknown.stdout
        assert unknown.stdout.count(" guests list") == 1
