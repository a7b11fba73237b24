"""``agent --once --dry-run``: writes nothing anywhere, and prints what the run after it sends."""

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.folder import all_of
from tests.functional.cli.setups import from_file, host_file, merged, on
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentCommand, AgentHere, Result

SHOWN = ("op", "provider", "before", "after", "reason")
UUID = "0d4f1d6a-5e0d-4a5e-9c4e-6f9b3a0f7f1c"

HOST: dict[str, Any] = {
    "cpu": {"online": "0-7"},
    "memory_mib": 16384,
    "disk_gib": 100,
    "providers": [
        {"name": "$NODE-gpu", "inventories": {"PGPU": {"total": 1}}, "traits": ["CUSTOM_TESLA"]},
        {
            "name": "$NODE-fpga",
            "inventories": {"FPGA": {"total": 2}, "CUSTOM_LICENSE": {"total": 7}},
        },
    ],
}


def operations(result: Result) -> list[dict[str, Any]]:
    """What a run planned or sent, node by node, without what became of it."""
    return [
        {key: one[key] for key in SHOWN}
        for node in result.json["nodes"]
        for one in node["operations"]
    ]


def without_uuids(value: Any, names: Mapping[str, str]) -> Any:
    """``value`` as it prints without an identity: uuids of the node's providers are null, or names
    where they are keys.
    """
    if isinstance(value, Mapping):
        return {names.get(key, key): without_uuids(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [without_uuids(one, names) for one in value]
    return None if isinstance(value, str) and value in names else value


def names_of(result: Result) -> dict[str, str]:
    return {row["uuid"]: row["name"] for node in result.json["nodes"] for row in node["tree"]}


def dry(agent: AgentCommand, placement: HttpPlacement | None, *more: str) -> Result:
    """A dry run; not a byte of Placement's database and of anything in the agent's folder changes,
    and it says the same again.
    """
    before = all_of(agent.folder), placement and placement.database
    result = agent.run("--once", "--dry-run", "--format", "json", *more)
    assert (all_of(agent.folder), placement and placement.database) == before
    assert result.json["dry_run"] is True
    assert {one["status"] for node in result.json["nodes"] for one in node["operations"]} <= {
        "planned"
    }
    return result


def really(agent: AgentCommand, *more: str) -> Result:
    result = agent.run("--once", "--format", "json", *more)
    assert result.code == 0, result
    assert {one["status"] for node in result.json["nodes"] for one in node["operations"]} <= {
        "done"
    }
    return result


def foretold(
    agent: AgentCommand, placement: HttpPlacement | None = None, *more: str
) -> tuple[Result, Result]:
    """A dry run and the run after it, whose operations are the same."""
    told, done = dry(agent, placement, *more), really(agent, *more)
    assert told.code == 0, told
    assert operations(told) == operations(done)
    assert operations(told), "the test shows nothing"
    assert {node["state"] for node in told.json["nodes"] if node["operations"]} == {"pending"}
    return told, done


# --- over HTTP ------------------------------------------------------------------------------------


def test_without_store_or_identity_uuids_are_null_and_all_else_is_as_it_will_be(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    told = dry(agent, http_placement)
    assert told.code == 0, told
    assert not agent.store.exists()
    assert told.json["nodes"][0]["uuid"] is None
    assert {row["uuid"] for row in told.json["nodes"][0]["tree"]} == {None}
    done = really(agent)
    assert operations(told) == without_uuids(operations(done), names_of(done))
    assert [one["op"] for one in operations(told)].count("create-provider") == 5
    assert dry(agent, http_placement).json["nodes"][0]["operations"] == []


def test_without_identity_no_made_up_uuid_is_in_the_output_at_all(agent: AgentHere) -> None:
    first, second = (agent.run("--once", "--dry-run", "--format", "json").json for _ in range(2))
    for document in (first, second):
        document["nodes"][0]["seconds"] = {}
    assert first == second
    texts = [agent.run("--once", "--dry-run").stdout.rpartition(", ") for _ in range(2)]
    assert texts[0][2] == texts[1][2] == "dry run: nothing was written\n"
    operations_shown = [text[0].partition("operations\n")[2].rpartition("\n")[0] for text in texts]
    assert operations_shown[0] == operations_shown[1] != ""


@pytest.mark.parametrize("where", ["own", "nova"])
def test_with_an_identity_uuids_are_those_of_the_run_after_it(
    agent: AgentHere, http_placement: HttpPlacement, where: str
) -> None:
    folder = agent.store if where == "own" else agent.folder / "nova"
    folder.mkdir()
    (folder / "compute_id").write_text(f"{UUID}\n")
    agent.configure(
        on(http_placement, "fake.numa", {"DEFAULT": {"state_path": agent.folder / "nova"}})
    )
    told, _ = foretold(agent, http_placement)
    assert told.json["nodes"][0]["uuid"] == UUID
    assert None not in {row["uuid"] for row in told.json["nodes"][0]["tree"]}


def test_an_empty_folder_stays_empty(agent: AgentHere, http_placement: HttpPlacement) -> None:
    agent.store.mkdir()
    assert dry(agent, http_placement).code == 0
    assert list(agent.store.iterdir()) == []


def test_a_changed_host_file(http_placement: HttpPlacement, tmp_path: Path) -> None:
    agent = from_file(http_placement, tmp_path / "agent", HOST)
    really(agent)
    host_file(
        agent, {**HOST, "memory_mib": 32768, "traits": ["CUSTOM_RACK_7"], "cpu": {"online": "0-3"}}
    )
    told, _ = foretold(agent, http_placement)
    assert [one["op"] for one in operations(told)] == [
        "ensure-trait",
        "set-inventory",
        "set-traits",
    ]
    (changed,) = [one for one in operations(told) if one["op"] == "set-inventory"]
    assert [
        (changed[when]["MEMORY_MB"]["total"], changed[when]["VCPU"]["total"])
        for when in ("before", "after")
    ] == [(16384, 8), (32768, 4)]


def test_a_removed_device(http_placement: HttpPlacement, tmp_path: Path) -> None:
    agent = from_file(http_placement, tmp_path / "agent", HOST)
    really(agent)
    host_file(agent, {**HOST, "providers": HOST["providers"][1:]})
    told, _ = foretold(agent, http_placement)
    assert [(one["op"], one["provider"]["name"], one["after"]) for one in operations(told)] == [
        ("delete-provider", "node-a-gpu", None)
    ]


def test_a_moved_and_a_replaced_device(http_placement: HttpPlacement, tmp_path: Path) -> None:
    agent = from_file(http_placement, tmp_path / "agent", HOST)
    really(agent)
    gpu, fpga = HOST["providers"]
    aggregate = "7c5d1a10-6f4d-4a0e-8c63-5a8e0a2b9a11"
    moved = {**gpu, "parent": "$NODE-shelf", "aggregates": [aggregate]}
    host_file(
        agent,
        {**HOST, "providers": [moved, {"name": "$NODE-shelf"}, {**fpga, "name": "$NODE-new"}]},
    )
    told, _ = foretold(agent, http_placement)
    assert {one["op"] for one in operations(told)} == {
        "create-provider",
        "delete-provider",
        "reparent-provider",
        "set-inventory",
        "set-aggregates",
    }


def test_several_nodes(http_placement: HttpPlacement, tmp_path: Path) -> None:
    nodes = [{"name": f"blade-{number}", "memory_mib": 1024 * number} for number in range(1, 7)]
    agent = from_file(http_placement, tmp_path / "agent", {"nodes": nodes})
    told = dry(agent, http_placement)
    done = really(agent)
    assert operations(told) == without_uuids(operations(done), names_of(done))
    assert {node["state"] for node in told.json["nodes"]} == {"pending"}
    # One more, one other, one less; those in sync are in the report too.
    host_file(
        agent,
        {
            "nodes": [
                *nodes[1:-1],
                {**nodes[-1], "memory_mib": 99999},
                {"name": "blade-7", "memory_mib": 7168},
            ]
        },
    )
    told, _ = foretold(agent, http_placement)
    assert {
        node["name"]: [one["op"] for one in node["operations"]] for node in told.json["nodes"]
    } == {
        "blade-1": ["delete-provider"],
        **{f"blade-{number}": [] for number in range(2, 6)},
        "blade-6": ["set-inventory"],
        "blade-7": ["create-provider", "set-inventory", "set-traits"],
    }


def test_names_that_several_nodes_bring_are_made_by_the_first_of_them(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    kinds = ["GOLD", "SILVER", "SILVER", "BRONZE", "SILVER", "BRONZE", "GOLD", "IRON"]
    nodes = [
        {
            "name": f"blade-{number}",
            "traits": [f"CUSTOM_{kind}"],
            "providers": [{"name": "$NODE", "inventories": {f"CUSTOM_RACK_{kind}": {"total": 1}}}],
        }
        for number, kind in enumerate(kinds)
    ]
    agent = from_file(http_placement, tmp_path / "agent", {"nodes": nodes})
    told, done = dry(agent, http_placement), really(agent)
    assert operations(told) == without_uuids(operations(done), names_of(done))
    names = [one["after"] for one in operations(told) if one["op"].startswith("ensure")]
    assert sorted(names) == sorted(
        {
            "CUSTOM_COMPUTE_NODE_AGENT_NODE_A",
            *(f"CUSTOM_{kind}" for kind in kinds),
            *(f"CUSTOM_RACK_{kind}" for kind in kinds),
        }
    )
    made = [
        one
        for one in http_placement.writes()
        if one.path.startswith(("/traits", "/resource_classes"))
    ]
    assert len(made) == len(names)


def test_an_adoption(agent: AgentHere, http_placement: HttpPlacement, tmp_path: Path) -> None:
    really(agent)
    (root,) = [
        uuid for uuid, one in http_placement.dump()["providers"].items() if one["name"] == "node-a"
    ]
    # The disk is lost; only nova's file still knows who the node is.
    stranger = AgentHere(tmp_path / "stranger")
    (stranger.folder / "nova").mkdir()
    (stranger.folder / "nova" / "compute_id").write_text(root)
    stranger.configure(
        on(http_placement, "fake.small", {"DEFAULT": {"state_path": stranger.folder / "nova"}})
    )
    unadopted = dry(stranger, http_placement)
    assert "delete-provider" not in [one["op"] for one in operations(unadopted)]
    foretold(stranger, http_placement, "--adopt")
    assert dry(stranger, http_placement).json["nodes"][0]["operations"] == []


def test_what_others_changed_meanwhile(agent: AgentHere, http_placement: HttpPlacement) -> None:
    really(agent)
    other, (root, cell, *_) = http_placement.other, list(http_placement.dump()["providers"])
    other.set_traits(root, ["CUSTOM_OPS"])
    other.set_inventory(root, {"VCPU": 3})
    other.rename(cell, "stolen")
    told, done = foretold(agent, http_placement)
    assert {one["op"] for one in operations(told)} == {
        "rename-provider",
        "set-inventory",
        "set-traits",
    }
    assert told.json["nodes"][0]["drift"] == done.json["nodes"][0]["drift"]
    assert "CUSTOM_OPS" in other.traits(root)


def test_the_text_shows_the_same_operations_as_the_run_after_it(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = from_file(http_placement, tmp_path / "agent", HOST)
    really(agent)
    host_file(agent, {**HOST, "memory_mib": 32768, "providers": HOST["providers"][:1]})
    told, done = (
        agent.run("--once", *more).stdout.partition("operations\n")[2].splitlines()
        for more in (["--dry-run"], [])
    )
    assert told[:-1] == done[:-1]
    assert len(told) > 3
    assert told[-1].endswith("dry run: nothing was written")


def test_a_busy_store_is_no_obstacle(agent: AgentHere, http_placement: HttpPlacement) -> None:
    """A dry run takes no lock: it answers while a run is at work, and leaves the store to it."""
    really(agent)
    with closing(
        sqlite3.connect(agent.store / "database/store.sqlite", isolation_level=None)
    ) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE identity SET host = host")
        assert dry(agent, http_placement).code == 0
        writer.execute("ROLLBACK")


def test_detailed_exit_code_says_that_changes_are_pending(
    agent: AgentHere, http_placement: HttpPlacement
) -> None:
    assert dry(agent, http_placement, "--detailed-exitcode").code == 2
    really(agent)
    assert dry(agent, http_placement, "--detailed-exitcode").code == 0


# --- the embedded Placement -----------------------------------------------------------------------


@pytest.fixture
def embedded(tmp_path: Path) -> Callable[..., AgentCommand]:
    """Makes an agent with the embedded Placement; it needs a process of its own, where there is one
    such Placement.
    """

    def make(folder: str = "agent", driver: str = "fake.numa") -> AgentCommand:
        return AgentCommand(
            tmp_path / folder,
            {"DEFAULT": {"compute_driver": driver, "host": "node-a", "state_path": "/nonexistent"}},
        )

    return make


@pytest.mark.long
@pytest.mark.parametrize("folder", ["agent", "a folder with #, ? and %41"])
def test_embedded_with_a_store_the_copy_in_memory_is_the_database(
    embedded: Callable[..., AgentCommand], folder: str
) -> None:
    agent = embedded(folder)
    really(agent)
    agent.configure(
        merged(
            {
                "DEFAULT": {
                    "compute_driver": "fake.small",
                    "host": "node-a",
                    "state_path": "/nonexistent",
                }
            }
        )
    )
    told, _ = foretold(agent)
    assert [one["op"] for one in operations(told)].count("delete-provider") == 4
    assert sorted(path.name for path in agent.store.iterdir()) == [
        "compute_id",
        "database",
        "lock",
        "placement.sqlite",
    ]


@pytest.mark.long
def test_embedded_with_a_database_that_a_crash_left(embedded: Callable[..., AgentCommand]) -> None:
    """Changes that are only in the write-ahead log beside the file are seen, and stay there."""
    agent = embedded()
    really(agent)
    database = agent.store / "placement.sqlite"
    copy = agent.folder / "copy"
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(
            "UPDATE resource_providers SET name = 'node-a_CELL' WHERE name = 'node-a_NUMA3'"
        )
        copy.mkdir()
        for file in agent.store.glob("placement.sqlite*"):
            (copy / file.name).write_bytes(file.read_bytes())
    for file in copy.iterdir():
        (agent.store / file.name).write_bytes(file.read_bytes())
    assert (agent.store / "placement.sqlite-wal").stat().st_size
    told, _ = foretold(agent)
    assert [one["op"] for one in operations(told)] == ["rename-provider"]
