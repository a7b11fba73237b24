"""A store that a former version wrote, with its Placement, both recorded: it is refused, and the
commands that the refusal names lead to a host that has its children, its allocations and its guests.
"""

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agent.api.client import ApiProblem
from tests.functional.cli.refusals import contents
from tests.functional.test_renamed_hosts import (
    CLASS,
    GPU,
    GUEST,
    HOST,
    OFFERED,
    OLD,
    PINNED,
    RenamedHost,
    as_the_first_release_left,
    called,
    child,
    names,
    offered,
    with_its_store,
)
from tests.support.http_placement import HttpPlacement
from tests.support.tracking import F1, guest

RUNS_HERE = {
    "uuid": GUEST,
    "name": "pinned",
    "devices": [GPU.lower()],
    "cells": [
        {"host_cell": 0, "memory_mib": 512, "dedicated": "0-1", "pins": {"0": 1, "1": 2}},
    ],
}


@pytest.fixture
def host(http_placement: HttpPlacement, tmp_path: Path) -> RenamedHost:
    made = RenamedHost(tmp_path / "agent", http_placement.url)
    described = {key: value for key, value in HOST.items() if key != "uuid"}
    (made.command.folder / "host.yaml").write_text(json.dumps({**described, "guests": [RUNS_HERE]}))
    as_the_first_release_left(made, http_placement, "nested")
    with_its_store(made)
    return made


def test_a_store_of_a_former_version_is_refused_and_the_named_commands_lead_on(
    host: RenamedHost, http_placement: HttpPlacement
) -> None:
    before, store = http_placement.dump(), contents(host.here.store)
    for words in (["--once"], ["--once", "--dry-run"], ["claims", "--offline"], ["db", "upgrade"]):
        refused = host.here.run(*words, "--format", "json")
        (error,) = refused.json["errors"]
        assert (refused.code, error["code"]) == (1, "store.unusable")
        assert str(host.here.store / "store.sqlite") in error["message"]
    assert (http_placement.dump(), contents(host.here.store)) == (before, store)
    (command,) = re.findall(r"agent (db set-aside)", error["remedy"])
    identity = (host.here.store / "compute_id").read_text()
    (host.here.store / "placement.sqlite").write_text("the embedded one")
    done = host.here.run(*command.split(), "--format", "json").json
    assert sorted(path.name for path in Path(done["folder"]).iterdir()) == ["store.sqlite"]
    assert (host.here.store / "compute_id").read_text() == identity
    assert (host.here.store / "placement.sqlite").read_text() == "the embedded one"
    amounts = offered(http_placement)
    for words in ([word.removeprefix("agent ").split() for word in done["next"]])[:2]:
        ended = host.here.run(*words)
        assert ended.code == 0, ended
        assert offered(http_placement) == amounts == OFFERED
    # The children are found by their names, and have the uuids that nova or a former version chose.
    after = http_placement.dump()
    assert after["consumers"] == before["consumers"]
    assert names(http_placement) == {uuid: one["name"] for uuid, one in before["providers"].items()}
    assert set(names(http_placement).values()) == called(OLD)
    node = host.once()
    assert (node["state"], node["drift"]) == ("in-sync", [])
    # Nothing is offered twice: neither by Placement nor by the agent.
    card = child(http_placement, f"_{GPU}")
    assert not http_placement.other.can_claim({card: {CLASS: 1}}, guest("i2"))
    with host.service.running():
        host.answers(host.client.readiness)
        for flavor in (PINNED, {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "1"}):
            with pytest.raises(ApiProblem) as caught:
                host.claim("i2", replace(F1, vcpus=4, root_gb=0, extra_specs=flavor))
            assert caught.value.status == 409


def test_a_database_that_a_former_version_had_elsewhere_is_refused_too(
    host: RenamedHost, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    file = tmp_path / "elsewhere.sqlite"
    (host.here.store / "store.sqlite").rename(file)
    host.config["store"] = {"connection": f"sqlite:///{file}"}
    host.call(OLD)
    before = http_placement.dump()
    refused = host.here.run("--once")
    assert "has schema 0014, made by an earlier agent" in refused.stderr
    assert refused.stderr.endswith(" db set-aside\n")
    assert http_placement.dump() == before
    assert host.here.run("db", "set-aside").code == 0
    assert host.once("--once", "--adopt")["errors"] == []
    (aside,) = tmp_path.glob("elsewhere.sqlite.aside-*")
    with closing(sqlite3.connect(aside / file.name)) as database:
        assert database.execute("SELECT host FROM identity").fetchall() == [(OLD,)]
