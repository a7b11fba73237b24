"""Configuration files, and the agent's command line as a process."""

import json
import os
from pathlib import Path

import pytest
from oslo_config import cfg

from tests.support.ini import write_config
from tests.support.system import AgentCommand, Result


def test_a_configuration_is_read_as_it_was_written(tmp_path: Path) -> None:
    secret = 'a $ecret % of {the} "tests" # not a comment'
    file = write_config(
        tmp_path / "new" / "agent.conf",
        {
            "DEFAULT": {"host": "node-a", "enabled": False},
            "placement": {"password": secret, "valid_interfaces": "internal,public"},
            "pci": {"spec": ["{1}", "{2}"]},
        },
    )
    conf = cfg.ConfigOpts()
    conf.register_opts([cfg.StrOpt("host"), cfg.BoolOpt("enabled", default=True)])
    conf.register_opts([cfg.StrOpt("password"), cfg.ListOpt("valid_interfaces")], group="placement")
    conf.register_opts([cfg.MultiStrOpt("spec")], group="pci")
    conf([], default_config_files=[str(file)])
    assert (conf.host, conf.enabled) == ("node-a", False)
    assert (conf.placement.password, conf.placement.valid_interfaces) == (
        secret,
        ["internal", "public"],
    )
    assert conf.pci.spec == ["{1}", "{2}"]


def test_the_command_runs_with_its_own_folder_and_configuration(
    agent_command: AgentCommand,
) -> None:
    result = agent_command.run("--version")
    assert result.code == 0, result
    assert result.stdout.strip()
    assert f"path = {agent_command.store}" in agent_command.config_file.read_text()


def test_wrong_usage_shows_in_the_exit_code(agent_command: AgentCommand) -> None:
    result = agent_command.run("--no-such-option")
    assert (result.code, result.stdout) == (64, "")
    assert "--no-such-option" in result.stderr


def test_a_run_that_takes_too_long_fails_and_is_ended(agent_command: AgentCommand) -> None:
    with pytest.raises(AssertionError, match=r"not done in 0\.001 s"):
        agent_command.run("--version", timeout=0.001)


def test_a_started_command_is_ended_with_its_block(agent_command: AgentCommand) -> None:
    with agent_command.started("--version") as process:
        pass
    assert process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_output_that_is_no_json_document_fails_the_test() -> None:
    document = {
        "schema": "compute-node-agent/schema/1",
        "schemas": {},
        "errors": [],
        "exit_code": 0,
    }
    assert Result((), 0, json.dumps(document), "").json == document
    with pytest.raises(AssertionError, match="no JSON document"):
        _ = Result(("--once",), 0, '{"a": 1}\n{"b": 2}', "").json
