"""``agent takeover check``: what speaks against a takeover, with a verdict and the next command, and
without one write.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.cli.commands import nova_compute
from tests.functional.cli.setups import host_file, merged, on
from tests.support.http_placement import HttpPlacement
from tests.support.keystone import AGENT, NO_SERVICE, Keystone
from tests.support.service_manager import Service
from tests.support.system import AgentCommand, AgentHere, Result
from tests.support.tracking import guest

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000c001"
SMALL = {"id": "7", "name": "m1.small", "vcpus": 1, "memory_mb": 2048, "root_gb": 20}
HELD = {"VCPU": 1, "MEMORY_MB": 2048, "DISK_GB": 20}
FIRST = guest("first")
MARKS = {"OWNER_NOVA", "CUSTOM_COMPUTE_NODE_AGENT_NODE_A"}


def host(*guests: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "disk_gib": 500,
        "cells": [
            {"id": cell, "cpus": f"{8 * cell}-{8 * cell + 7}", "memory_mib": 16384}
            for cell in range(2)
        ],
        "guests": list(guests),
    }


def a_guest(uuid: str, **more: Any) -> dict[str, Any]:
    origin = {"flavor": SMALL, "project_id": "project", "user_id": "user"}
    return {
        "uuid": uuid,
        "name": "guest",
        "memory_mib": 2048,
        "vcpus": 1,
        "origin": origin,
        **more,
    }


class Site:
    """A host of nova-compute, which is stopped, and an agent that might take it over."""

    def __init__(self, folder: Path, placement: HttpPlacement) -> None:
        self.folder, self.placement = folder, placement
        self.agent = AgentHere(folder / "agent")
        nova = folder / "nova"
        nova.mkdir()
        (nova / "compute_id").write_text(ROOT)

    def has(self, *guests: Mapping[str, Any], **options: Any) -> None:
        self.agent.configure(self._config(self.agent, host(*guests), options))

    def _config(
        self, agent: AgentHere, described: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Any:
        own = {
            "DEFAULT": {"state_path": self.folder / "nova"},
            "fake": {"host_file": host_file(agent, described)},
        }
        return merged(on(self.placement, "fake.file"), own, options)

    def as_nova_has_it(self) -> None:
        """Bring the node into Placement as nova has it: flat, without the marks of an agent."""
        manager = AgentHere(self.folder / "manager")
        manager.configure(self._config(manager, host(), {"compute": {"tree_layout": "flat"}}))
        assert manager.run("--once").code == 0
        other = self.placement.other
        other.set_traits(ROOT, other.traits(ROOT) - MARKS)
        self.placement.clear()

    def check(self, *arguments: str, **env: str) -> Result:
        """Run the check. Nothing was written, neither to Placement nor to the store."""
        before, files = self.placement.dump(), sorted(self.agent.folder.rglob("*"))
        found = self.agent.run("takeover", "check", *arguments, env=env)
        assert {request.method for request in self.placement.requests} <= {"GET"}
        assert self.placement.dump() == before
        assert sorted(self.agent.folder.rglob("*")) == files
        return found

    def checks(self, **env: str) -> dict[str, list[tuple[str, str, str]]]:
        document = self.check("--format", "json", **env).json
        found: dict[str, list[tuple[str, str, str]]] = {}
        for one in document["checks"]:
            found.setdefault(one["check"], []).append((one["verdict"], one["detail"], one["next"]))
        return found


@pytest.fixture
def site(tmp_path: Path, http_placement: HttpPlacement, own_processes: None) -> Site:
    return Site(tmp_path, http_placement)


def the(found: Mapping[str, list[tuple[str, str, str]]], name: str) -> tuple[str, str, str]:
    (one,) = found[name]
    return one


def systemctl(folder: Path, active: str, enabled: str) -> str:
    """A PATH with a systemctl that answers so for nova-compute.service, and otherwise of no unit."""
    script = folder / "bin" / "systemctl"
    script.parent.mkdir()
    script.write_text(
        '#!/bin/sh\ncase "$1 $2" in\n'
        f'"is-active nova-compute.service") echo {active};;\n'
        f'"is-enabled nova-compute.service") echo {enabled};;\n'
        "*) echo inactive; exit 4;;\nesac\n"
    )
    script.chmod(0o755)
    return f"{script.parent}:{os.environ['PATH']}"


def test_a_host_with_its_guests_on_record_may_be_taken_over(site: Site) -> None:
    site.as_nova_has_it()
    site.has(a_guest(FIRST))
    site.placement.other.claim({ROOT: HELD}, FIRST)
    assert site.agent.run("guests", "import").code == 0
    site.placement.clear()
    result = site.check("--format", "json", "--detailed-exitcode")
    document = result.json
    assert result.code == document["exit_code"] == 0
    assert document["schema"] == "compute-node-agent/takeover-check/1"
    assert (document["host"], document["verdict"], document["errors"]) == ("node-a", "ok", [])
    unknown = {one["check"] for one in document["checks"] if one["verdict"] != "ok"}
    # Nor is known what units there are on a machine without systemd.
    assert unknown - {"nova-compute-unit"} == {"nova-compute-service", "rival-writer"}
    found = {one["check"]: one for one in document["checks"]}
    assert found.keys() == {
        "nova-compute-process",
        "nova-compute-service",
        "nova-compute-unit",
        "rival-writer",
        "option",
        "guests",
        "placement",
        "role",
        "identity",
        "layout",
        "changes",
    }
    assert "1 guest, each with a record" in found["guests"]["detail"]
    assert "offers microversion 1.39" in found["placement"]["detail"]
    # The marks of the agent are all that a flat tree lacks.
    assert "1 operation at first: set-traits 1" in found["changes"]["detail"]
    assert found["changes"]["next"] == "agent --once --adopt --dry-run"


def test_the_text_has_each_check_with_the_next_command_and_an_end(site: Site) -> None:
    site.as_nova_has_it()
    site.has(a_guest(FIRST))
    result = site.check()
    assert result.code == 1
    lines = result.stdout.splitlines()
    assert "✗ guests  node-a: 1 guest of 1 without a record" in lines
    assert any(re.fullmatch("  → agent (--config-file .*)?guests import", one) for one in lines)
    assert lines[-1] == "node-a: not yet: see what blocks the takeover"


def test_warnings_alone_are_an_exit_code_of_their_own_only_if_it_is_asked_for(site: Site) -> None:
    site.as_nova_has_it()
    site.has(
        DEFAULT={"enable_new_services": "false"},
        compute={"consecutive_build_service_disable_threshold": 3},
    )
    found = site.checks()
    options = [detail for verdict, detail, _ in found["option"] if verdict == "warning"]
    assert len(options) == 2
    assert any("[DEFAULT] enable_new_services" in detail for detail in options)
    assert any("consecutive_build_service_disable_threshold" in detail for detail in options)
    assert (site.check().code, site.check("--detailed-exitcode").code) == (0, 2)


@pytest.fixture
def nova_runs(tmp_path: Path) -> Iterator[int]:
    """A process with the command line of nova-compute."""
    script = tmp_path / "nova-compute"
    script.write_text("import time\ntime.sleep(600)\n")
    with subprocess.Popen([sys.executable, str(script), "--config-file", "x"]) as process:
        yield process.pid
        process.kill()


def test_a_nova_compute_that_runs_blocks(site: Site, nova_runs: int) -> None:
    site.as_nova_has_it()
    site.has()
    verdict, detail, _ = the(site.checks(), "nova-compute-process")
    assert (verdict, f"pid {nova_runs}" in detail) == ("blocks", True)
    assert site.check().code == 1


@pytest.mark.parametrize(
    ("active", "enabled", "verdict", "command"),
    [
        ("active", "enabled", "blocks", "systemctl disable --now nova-compute"),
        ("inactive", "enabled", "warning", "systemctl disable nova-compute"),
        ("inactive", "disabled", "ok", ""),
    ],
)
def test_a_unit_that_is_active_or_enabled_is_told(
    site: Site, tmp_path: Path, active: str, enabled: str, verdict: str, command: str
) -> None:
    site.as_nova_has_it()
    site.has()
    found = the(site.checks(PATH=systemctl(tmp_path, active, enabled)), "nova-compute-unit")
    assert (found[0], found[2]) == (verdict, command)


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (["/usr/bin/python3", "/usr/bin/nova-compute", "--config-file", "nova.conf"], True),
        (["/opt/nova/bin/python", "-m", "nova.cmd.compute"], True),
        (["python3.11", "-W", "ignore", "/usr/local/bin/agent-nova-compute"], True),
        (["nova-compute"], True),
        (["python3", "-u", "-W", "ignore", "/usr/bin/nova-compute"], True),
        (["python3", "-X", "dev", "-m", "nova.cmd.compute"], True),
        (["python3", "watch.py", "nova-compute"], False),
        (["journalctl", "-u", "nova-compute"], False),
        (["/usr/bin/python3", "/usr/bin/nova-conductor"], False),
        ([], False),
    ],
)
def test_nova_compute_is_known_by_its_command_line(words: list[str], runs: bool) -> None:
    assert nova_compute.is_nova_compute(words) == runs


def test_without_a_uuid_of_nova_and_without_a_provider_there_is_nothing_to_take_over(
    site: Site,
) -> None:
    site.has()
    verdict, detail, _ = the(site.checks(), "identity")
    assert (verdict, "nothing to take over" in detail) == ("warning", True)
    (site.folder / "nova" / "compute_id").unlink()
    verdict, detail, command = the(site.checks(), "identity")
    assert (verdict, "compute_id" in detail) == ("blocks", True)
    assert command == (
        "give the --config-file of nova-compute, or the uuid that Placement has: "
        "agent identity set UUID"
    )


def test_the_mark_of_another_agent_blocks(site: Site) -> None:
    site.as_nova_has_it()
    site.has()
    other = site.placement.other
    other.call("PUT", "/traits/CUSTOM_COMPUTE_NODE_AGENT_NODE_B")
    other.set_traits(ROOT, {*other.traits(ROOT), "CUSTOM_COMPUTE_NODE_AGENT_NODE_B"})
    site.placement.clear()
    verdict, detail, _ = the(site.checks(), "another-agent")
    assert (verdict, "CUSTOM_COMPUTE_NODE_AGENT_NODE_B" in detail) == ("blocks", True)


def test_what_the_first_audit_would_refuse_blocks_with_its_remedy(site: Site) -> None:
    site.as_nova_has_it()
    # The cells of this guest, which holds memory, are not known.
    site.has(compute={"tree_layout": "nested", "numa_mode": "strict"})
    site.placement.other.claim({ROOT: HELD}, FIRST)
    site.placement.clear()
    verdict, detail, remedy = the(site.checks(), "refused")
    assert (verdict, FIRST in detail) == ("blocks", True)
    assert "agent guests import" in remedy


@pytest.mark.long
@pytest.mark.parametrize(
    ("user", "verdict", "told"),
    [
        (AGENT, "ok", "enough by the default policy"),
        (NO_SERVICE, "warning", "not the role service"),
    ],
)
def test_the_roles_of_the_account_are_told(
    tmp_path: Path,
    keystone: Keystone,
    keystone_placement: HttpPlacement,
    user: str,
    verdict: str,
    told: str,
) -> None:
    site = Site(tmp_path, keystone_placement)
    options = on(keystone_placement)
    options["placement"] = {**keystone.credentials(user), "max_in_flight": 1}
    options["DEFAULT"]["state_path"] = site.folder / "nova"
    site.agent.configure(options)
    found, detail, command = the(site.checks(), "role")
    assert (found, told in detail) == (verdict, True)
    assert command.startswith("openstack role add") == (verdict != "ok")


def test_a_placement_that_does_not_answer_blocks(site: Site) -> None:
    site.has(placement={"endpoint": "http://127.0.0.1:9/placement"})
    found = site.checks()
    verdict, detail, _ = the(found, "refused")
    assert (verdict, "127.0.0.1:9" in detail) == ("blocks", True)
    # Whether Placement has the root, and how, only an audit finds.
    verdict, detail, command = the(found, "layout")
    assert (verdict, command) == ("unknown", "agent --once --adopt --dry-run")
    assert "a root that Placement has keeps its layout; else the tree is nested" in detail
    site.has(compute={"tree_layout": "flat"}, placement={"endpoint": "http://127.0.0.1:9/"})
    told = "the tree is flat, because [compute] tree_layout = flat"
    assert the(site.checks(), "layout") == ("ok", told, "")


def test_a_configuration_with_errors_blocks_with_each_of_them(site: Site) -> None:
    site.has(compute={"cpu_shared_set": "0-99", "owner_trait": "not a trait"})
    (owner,) = (detail for _, detail, _ in site.checks()["configuration"])
    assert "owner_trait" in owner


def test_who_changes_back_what_the_agent_writes_is_known_once_it_runs(site: Site) -> None:
    agent = AgentCommand(site.agent.folder)
    site.has()
    verdict, detail, remedy = the(site.checks(), "rival-writer")
    assert (verdict, detail.startswith("not known: no daemon")) == ("unknown", True)
    command = remedy.removeprefix("look again once the agent has taken over and runs: agent ")
    with Service(agent).running() as service:
        service.wait_for("READY")
        again = site.agent.run(*command.split(), "--format", "json").json["checks"]
    found = [one["verdict"] for one in again if one["check"] == "rival-writer"]
    assert found == ["ok"]


def test_an_agent_that_observes_is_told_to_manage_and_shown_the_plan_all_the_same(
    site: Site,
) -> None:
    site.as_nova_has_it()
    site.has(DEFAULT={"mode": "observe"})
    found = site.checks()
    assert the(found, "configuration")[0] == "warning"
    assert "set-traits 1" in the(found, "changes")[1]


def test_a_host_that_somebody_disabled_is_told_if_the_agent_is_to_enable_it(site: Site) -> None:
    site.has(DEFAULT={"enabled": True})
    site.as_nova_has_it()
    other = site.placement.other
    other.set_traits(ROOT, {*other.traits(ROOT), "COMPUTE_STATUS_DISABLED"})
    site.placement.clear()
    verdict, detail, _ = the(site.checks(), "drift")
    assert verdict == "warning"
    assert detail.startswith("disabled: node-a has COMPUTE_STATUS_DISABLED, which somebody else")
