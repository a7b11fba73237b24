"""nova's own tracker and the agent at work on one root with different ratios: the agent notices,
stops writing against the other one, and ``agent takeover check`` names it.

``NOVA_PYTHON`` names a Python that has nova 34; without it this is left out.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from agent.audit.context import AuditOptions
from agent.bootstrap.fleet import running_fleet
from agent.cli.configuration import load
from agent.cli.parser import parse
from tests.functional.cli.setups import host_file, merged, on
from tests.support import backends
from tests.support.http_placement import HttpPlacement
from tests.support.monotonic import Clock
from tests.support.novas_tracker import NOVA, NovaTracker
from tests.support.service_manager import Service, until
from tests.support.system import AgentCommand, AgentHere

ROOT = "5f9c2a34-7d1e-4a8b-9c46-00000000c003"
HOST = {
    "disk_gib": 1028,
    "cells": [{"id": 0, "cpus": "0-9", "memory_mib": 8192}],
}

pytestmark = pytest.mark.long

MINUTES = 35
"""Long enough for the agent to write three times after it has told."""


@pytest.fixture
def nova(
    tmp_path: Path, http_placement: HttpPlacement, request: pytest.FixtureRequest
) -> Iterator[NovaTracker]:
    if not NOVA:
        pytest.skip(backends.reason("nova's own tracker", "set NOVA_PYTHON to a Python with nova"))
    options = {
        "DEFAULT": {
            "host": "node-a",
            "state_path": tmp_path / "nova",
            "cpu_allocation_ratio": 4.0,
        },
        "compute": {
            "provider_config_location": tmp_path / "none",
            "resource_provider_association_refresh": request.param,
        },
    }
    tracker = NovaTracker(tmp_path, http_placement, options, ROOT, "node-a")
    yield tracker
    tracker.stop()


def configure(agent: AgentCommand, placement: HttpPlacement, folder: Path, **more: Any) -> None:
    (folder / "nova").mkdir(exist_ok=True)
    (folder / "nova" / "compute_id").write_text(ROOT)
    own = {
        "DEFAULT": {
            "state_path": folder / "nova",
            "cpu_allocation_ratio": 16.0,
            "update_resources_interval": 1,
        },
        "fake": {"host_file": host_file(agent, HOST)},
    }
    agent.configure(merged(on(placement, "fake.file"), own, more))


def ratio(placement: HttpPlacement) -> float:
    return float(placement.other.inventory(ROOT)["VCPU"]["allocation_ratio"])


@pytest.mark.parametrize("nova", [30, 300], indirect=True, ids=["each period", "by default"])
def test_the_agent_tells_the_third_time_and_writes_once_in_ten_minutes_from_then_on(
    nova: NovaTracker,
    http_placement: HttpPlacement,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr("agent.audit.node_audit.time", clock)
    agent = AgentHere(tmp_path / "agent")
    configure(agent, http_placement, tmp_path)
    nova.period(0.0)
    conf = load(parse(["--config-file", str(agent.config_file), "--once"]))
    met, told, written = list[int](), list[int](), list[int]()
    with running_fleet(conf, Event()) as fleet:
        for minute in range(MINUTES):
            clock.now = 60.0 * minute
            nova.period(clock.now)
            if ratio(http_placement) == 4.0:
                met.append(minute)
            http_placement.clear()
            (node,) = fleet.run(AuditOptions(adopt=minute == 0, start=minute == 0)).nodes
            for drift in node.drift:
                if drift.kind == "rival-writer":
                    told.append(minute)
                    assert "inventory of VCPU" in drift.detail
                    assert "nova-compute" in drift.remedy
            if http_placement.writes():
                written.append(minute)
                assert ratio(http_placement) == 16.0
    # The first pass that meets nova's ratio corrects it, and so does the second; the third one
    # tells, and every later one.
    assert told == list(range(met[2], MINUTES))
    assert written[:2] == met[:2]
    assert all(later - before >= 10 for before, later in itertools.pairwise(written[1:]))
    assert len(written) <= 2 + (MINUTES - 1 - met[1]) // 10


@pytest.mark.parametrize("nova", [30], indirect=True)
def test_the_check_names_the_other_writer(
    nova: NovaTracker, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    command, agent = AgentCommand(tmp_path / "agent"), AgentHere(tmp_path / "agent")
    configure(command, http_placement, tmp_path)
    periods = itertools.count()
    nova.period(60.0 * next(periods))

    def check() -> dict[str, str]:
        checks = agent.run("takeover", "check", "--format", "json").json["checks"]
        found: dict[str, str] = next(one for one in checks if one["check"] == "rival-writer")
        return found

    with Service(command).running() as service:
        service.wait_for("READY")

        def blocks() -> bool:
            nova.period(60.0 * next(periods))
            return check()["verdict"] == "blocks"

        until(blocks, lambda: service)
        found = check()
        assert "inventory of VCPU" in found["detail"]
        assert "nova-compute" in found["next"]
    # Without a daemon nobody knows.
    assert check()["verdict"] == "unknown"
