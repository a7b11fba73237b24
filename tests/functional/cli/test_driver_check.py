"""``agent driver check``: the shipped drivers keep the promises of the interface, and drivers of
other distributions are checked by their names.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from stevedore.extension import ExtensionManager

from agent.model.facts import HostFacts
from tests.support import distribution
from tests.support.sound_driver import SoundDriver
from tests.support.system import AgentHere, Result

SHIPPED = ("fake", "fake.baremetal", "fake.medium_nested", "fake.numa", "host")


@pytest.fixture
def agent(tmp_path: Path) -> AgentHere:
    return AgentHere(tmp_path, {"DEFAULT": {"host": "node-a"}})


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with a sound driver, one that hangs, and one that breaks two promises."""
    drivers = {
        "sound": "tests.support.sound_driver:SoundDriver",
        "hangs": f"{__name__}:HangingDriver",
        "wrong": f"{__name__}:WrongDriver",
        "exits": f"{__name__}:ExitingDriver",
        "hangs-early": f"{__name__}:HangsWhenMade",
    }
    monkeypatch.syspath_prepend(str(distribution.install(tmp_path, "outside-drivers", drivers)))
    monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})


class HangingDriver(SoundDriver):
    """Does not answer for a minute."""

    def facts(self, name: str) -> HostFacts:
        assert self.started
        time.sleep(60)
        return super().facts(name)


class ExitingDriver(SoundDriver):
    """Ends the process, as far as a call in a thread can, and prints."""

    def facts(self, name: str) -> HostFacts:
        assert self.started
        print("{")
        sys.exit(3)

    def subscribe(self, changed: Callable[[str], None]) -> None:
        raise KeyboardInterrupt


class HangsWhenMade(SoundDriver):
    """Is never made."""

    def __init__(self, conf: Any = None) -> None:
        time.sleep(600)


class WrongDriver(SoundDriver):
    """Has a name and an amount that are wrong."""

    def facts(self, name: str) -> HostFacts:
        return self.described(name, memory_mib=2.5)

    def capabilities_as_traits(self) -> Mapping[str, bool]:
        return {"COMPUTE_MAGIC\x1b": True}


def by_state(result: Result) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for promise in result.json["checks"]:
        found.setdefault(promise["state"], []).append(promise["check"])
    return found


@pytest.mark.parametrize("driver", SHIPPED)
def test_a_shipped_driver_keeps_every_promise(agent: AgentHere, driver: str) -> None:
    result = agent.run("driver", "check", driver, "--format", "json")
    assert result.code == 0, result
    assert by_state(result).keys() == {"held", "not-applicable"}


def test_the_driver_of_host_files_keeps_every_promise(agent: AgentHere) -> None:
    file = Path(__file__).resolve().parents[3] / "etc" / "hosts" / "nested.yaml"
    agent.configure({"DEFAULT": {"host": "node-a"}, "fake": {"host_file": file}})
    result = agent.run("driver", "check", "fake.file", "--format", "json")
    assert result.code == 0, result


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_chaos_breaks_one_promise(agent: AgentHere, seed: int) -> None:
    chaos = {"chaos_seed": seed, "chaos_probability": 0.6}
    agent.configure({"DEFAULT": {"host": "node-a"}, "fake": chaos})
    result = agent.run("driver", "check", "fake.chaos", "--format", "json")
    assert (result.code, by_state(result)["broken"]) == (2, ["ready"]), result


def test_the_text_shows_each_promise_with_its_sign(agent: AgentHere, outside: None) -> None:
    result = agent.run("driver", "check", "sound")
    assert (result.code, result.stderr) == (0, ""), result
    assert "✓ facts-types  facts() is a HostFacts" in result.stdout
    assert result.stdout.endswith(", 1 not applicable (2 nodes)\n")
    # What does not apply is left out, unless all is wanted.
    assert "update_provider_tree() ends" not in result.stdout
    assert "update_provider_tree() ends" in agent.run("driver", "check", "sound", "--wide").stdout


def test_all_broken_promises_are_shown_at_once(agent: AgentHere, outside: None) -> None:
    result = agent.run("driver", "check", "wrong")
    assert result.code == 2, result
    assert "✗ facts-types" in result.stdout
    assert "    node-1: memory_mib = 2.5: no whole number of at least 0\n" in result.stdout
    assert "✗ capabilities-names" in result.stdout
    assert "\x1b" not in result.stdout
    assert " 2 broken, " in result.stdout


def test_the_document_has_each_breach_with_its_node(agent: AgentHere, outside: None) -> None:
    result = agent.run("driver", "check", "wrong", "--format", "json", "--node", "node-2")
    document: Any = result.json
    assert (document["schema"], document["driver"], document["exit_code"]) == (
        "compute-node-agent/driver-check/1",
        "wrong",
        2,
    )
    assert document["nodes"] == {"listed": 2, "checked": ["node-2"]}
    (types,) = (promise for promise in document["checks"] if promise["check"] == "facts-types")
    assert types["breaches"] == [
        {"node": "node-2", "detail": "memory_mib = 2.5: no whole number of at least 0"}
    ]
    assert types["remedy"]


def test_a_hanging_driver_fails_a_check_and_not_the_command(
    agent: AgentHere, outside: None
) -> None:
    result = agent.run(
        "driver", "check", "hangs", "--format", "json", "--compute-facts_deadline", "2"
    )
    assert (result.code, by_state(result)["broken"]) == (2, ["facts"]), result


def test_a_driver_that_ends_the_process_fails_its_checks_only(
    agent: AgentHere, outside: None
) -> None:
    result = agent.run("driver", "check", "exits", "--format", "json")
    assert (result.code, by_state(result)["broken"]) == (2, ["facts", "subscribe"]), result
    assert "SystemExit: 3" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "[DEFAULT] compute_driver = nosuch: no such driver"),
        (["sound", "--node", "node-9"], "--node node-9: the driver sound has no such node"),
        (["fake.file"], "[fake] host_file"),
        (
            ["hangs-early", "--compute-start_deadline", "1"],
            "driver hangs-early: constructor did not answer within 1 s",
        ),
    ],
)
def test_what_cannot_be_checked_is_an_error(
    agent: AgentHere, outside: None, arguments: list[str], message: str
) -> None:
    result = agent.run("driver", "check", *arguments, "--format", "json")
    assert result.code == 1, result
    assert result.json["errors"][0]["message"].startswith(message)
