"""``agent provider-config check`` without a daemon, and a start with bad files."""

import json

import pytest

from tests.functional.cli.refusals import refused
from tests.functional.cli.setups import on
from tests.support.provider_files import ProviderFiles, by_name, by_uuid, default
from tests.support.system import AgentHere

CHECK = ("provider-config", "check")


@pytest.fixture
def files(tmp_path) -> ProviderFiles:
    return ProviderFiles(tmp_path / "provider_config")


@pytest.fixture
def agent(agent: AgentHere, http_placement, files: ProviderFiles) -> AgentHere:
    agent.configure(
        on(http_placement, "fake.numa", {"compute": {"provider_config_location": files.folder}})
    )
    return agent


def test_right_files_are_counted_and_nothing_more_is_known_before_the_first_audit(
    agent: AgentHere, files: ProviderFiles
) -> None:
    files.write("a.yaml", default("CUSTOM_A"), by_name("gpu", "CUSTOM_B"))
    result = agent.run(*CHECK)
    assert result.code == 0
    assert result.stdout == (
        f"✓ 2 entries in 1 file of {files.folder}\n\nno node was audited yet, so that nothing can "
        "be said of what would change\n"
    )
    assert not agent.store.exists()


def test_what_would_change_is_shown_and_nothing_is_sent(
    agent: AgentHere, files: ProviderFiles, http_placement
) -> None:
    file = files.write("a.yaml", default("CUSTOM_A", CUSTOM_L={"total": 20}))
    assert agent.run("--once").code == 0
    assert agent.run(*CHECK, "--detailed-exitcode").code == 0
    files.write("a.yaml", default(CUSTOM_L={"total": 30}), by_name("gpu-7", "CUSTOM_B"))
    http_placement.clear()
    result = agent.run(*CHECK, "--detailed-exitcode")
    assert http_placement.requests == []
    assert result.code == 2
    head, warning, _, node, inventory, traits = result.stdout.splitlines()
    assert head == f"✓ 2 entries in 1 file of {files.folder}"
    assert warning.startswith(f"! name gpu-7 ({file}:")
    assert node.startswith("node-a  ")
    assert inventory == "~ node-a inventory: CUSTOM_L total 20 → 30 — other amounts of CUSTOM_L"
    assert traits == "~ node-a traits: -CUSTOM_A — no longer true of the node"
    assert agent.run(*CHECK).code == 0


def test_the_document_has_entries_warnings_and_operations(
    agent: AgentHere, files: ProviderFiles
) -> None:
    agent.run("--once")
    file = files.write(
        "a.yaml", default("CUSTOM_A", CUSTOM_L={"total": 20}), by_name("gpu-7"), version="1.3"
    )
    document = agent.run(*CHECK, "--format", "json").json
    assert tuple(document) == (
        "schema",
        "folder",
        "files",
        "entries",
        "warnings",
        "nodes",
        "errors",
        "exit_code",
    )
    assert (document["schema"], document["folder"], document["files"]) == (
        "compute-node-agent/provider-config-check/1",
        str(files.folder),
        [str(file)],
    )
    (entry,) = document["entries"]
    assert entry["identification"] == {"uuid": "$COMPUTE_NODE"}
    assert (entry["file"], entry["line"], entry["traits"]) == (str(file), 1, ["CUSTOM_A"])
    assert entry["inventories"]["CUSTOM_L"]["total"] == 20
    assert [one["message"].partition(": ")[2].split(" ")[0] for one in document["warnings"]] == [
        "meta.schema_version:",
        "providers[1]:",
    ]
    (node,) = document["nodes"]
    assert [one["op"] for one in node["operations"]] == [
        "ensure-resource-class",
        "ensure-trait",
        "set-inventory",
        "set-traits",
    ]
    assert (node["name"], node["errors"], document["errors"], document["exit_code"]) == (
        "node-a",
        [],
        [],
        0,
    )


def test_a_conflict_with_a_known_tree_is_an_error(agent: AgentHere, files: ProviderFiles) -> None:
    uuid = agent.run("--once", "--format", "json").json["nodes"][0]["uuid"]
    files.write("a.yaml", by_uuid(uuid, "CUSTOM_A"), by_name("node-a", "CUSTOM_B"))
    result = agent.run(*CHECK)
    assert "✗ provider node-a (" in result.stdout
    assert " has more than one entry: " in result.stdout
    assert (result.code, agent.run("--once").code) == (3, 3)


def test_files_of_another_folder_can_be_checked(agent: AgentHere, tmp_path) -> None:
    other = ProviderFiles(tmp_path / "other")
    other.write("a.yaml", default("CUSTOM_A"))
    assert f"1 entry in 1 file of {other.folder}" in agent.run(*CHECK, str(other.folder)).stdout
    missing = agent.run(*CHECK, str(tmp_path / "nowhere"))
    assert missing.code == 1
    assert f"✗ {tmp_path}/nowhere: there is no such folder" in missing.stderr


def test_a_folder_that_is_configured_may_be_missing(agent: AgentHere, files: ProviderFiles) -> None:
    files.folder.rmdir()
    assert agent.run(*CHECK).code == 0
    assert agent.run("--once").code == 0


@pytest.mark.parametrize(
    "command", [("--once",), ("--once", "--dry-run"), ("config", "check"), CHECK]
)
def test_everything_wrong_is_told_at_once_and_nothing_is_written(
    agent: AgentHere, files: ProviderFiles, http_placement, command
) -> None:
    files.text(
        "a.yaml",
        json.dumps(
            {"meta": {"schema_version": 1.0}, "providers": [{"identification": {"id": "x"}}]}
        ),
    )
    files.write("b.yaml", default("HW_CPU_X86_AVX", VCPU={"total": 4}))
    files.write("c.yaml", default("CUSTOM_A"), by_name("x\nERROR", "CUSTOM_A"))
    problems = refused(agent, http_placement, command=command)
    assert {one["code"] for one in problems} == {"config.invalid"}
    text = "\n".join(one["message"] for one in problems)
    for told in (
        "is 1.0, not text",
        "identification.id: is an unknown key",
        "VCPU",
        "HW_CPU_X86_AVX",
        "another entry for uuid $COMPUTE_NODE",
        "'x\\nERROR'",
    ):
        assert told in text
    assert len(problems) == 6


def test_a_warning_of_a_file_is_in_the_log_of_a_run(agent: AgentHere, files: ProviderFiles) -> None:
    files.write("a.yaml", default("CUSTOM_A"), version="1.7")
    result = agent.run("--once")
    assert result.code == 0
    assert "meta.schema_version: is 1.7, newer than 1.0" in result.stderr
