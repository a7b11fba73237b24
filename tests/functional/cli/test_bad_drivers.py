"""Drivers from elsewhere: how they are found, what happens when they misbehave, and names of all
kinds.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg
from stevedore.extension import ExtensionManager

from agent.errors import NotReady
from agent.model.facts import Cell, CpuFacts, HostFacts, Topology
from agent.model.provider_tree import ProviderTree
from tests.functional.cli import third_party
from tests.functional.cli.refusals import refused, the_only
from tests.functional.cli.setups import from_file, host_file, on
from tests.functional.cli.third_party import UUID, ThirdPartyDriver
from tests.support.agent import total
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentCommand, AgentHere


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the distribution is installed into."""
    site = third_party.install(tmp_path)
    monkeypatch.syspath_prepend(str(site))
    # What was found before in this process was found without the distribution.
    monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
    return site


@pytest.fixture
def outside(site: Path, http_placement: HttpPlacement, tmp_path: Path) -> AgentHere:
    """An agent with the driver of that distribution, and with deadlines of one second."""
    deadlines = {"compute": {"facts_deadline": 1, "nodes_deadline": 1, "start_deadline": 1}}
    return AgentHere(tmp_path / "agent", on(http_placement, "outside", deadlines))


def inventories(placement: HttpPlacement) -> dict[str, Any]:
    return {one["name"]: one["inventories"] for one in placement.dump()["providers"].values()}


# --- loading --------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_driver_of_another_distribution_is_found_by_its_entry_point(
    site: Path, http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = AgentCommand(tmp_path / "agent", on(http_placement, "outside"))
    path = f"{Path(__file__).resolve().parents[3]}:{site}"
    result = agent.run("--once", "--format", "json", env={"PYTHONPATH": path})
    assert result.code == 0, result
    assert (result.json["nodes"][0]["driver"], result.json["nodes"][0]["uuid"]) == ("outside", UUID)
    assert inventories(http_placement) == {
        "node-a": {"VCPU": total(4, allocation_ratio=4.0), "MEMORY_MB": total(2048, reserved=512)}
    }
    assert (
        agent.run("--once", "--format", "json", env={"PYTHONPATH": path}).json["nodes"][0]["state"]
        == "in-sync"
    )
    # Without the distribution there is no such driver, and those that are there are named.
    problem = the_only(refused(agent, http_placement))
    assert problem["message"] == "[DEFAULT] compute_driver = outside: no such driver"
    assert "fake.numa" in problem["remedy"]
    assert "outside" not in problem["remedy"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("driver", "told", "remedy"),
    [
        (
            "outside.nowhere",
            "it cannot be imported: No module named 'no_such_module_of_the_tests'",
            "install",
        ),
        (
            "outside.fails",
            "it failed with ValueError: a module\\nthat fails",
            "whoever wrote the driver",
        ),
        (
            "outside.nothing",
            "it is no driver, because it lacks stop, nodes, facts, is_node_deleted",
            "whoever wrote the driver",
        ),
        ("libvirt.NoSuchDriver", "no such driver", "outside"),
        ("a\tb", "a\\tb: no such driver", "outside"),
    ],
)
def test_drivers_that_cannot_be_loaded(
    outside: AgentHere, http_placement: HttpPlacement, driver: str, told: str, remedy: str
) -> None:
    problem = the_only(
        refused(
            outside,
            http_placement,
            "--compute_driver",
            driver,
            tracebacks=int("it failed with" in told),
        )
    )
    assert problem["code"] == "config.invalid"
    assert problem["message"].startswith("[DEFAULT] compute_driver = ")
    assert told in problem["message"]
    assert remedy in problem["remedy"]
    assert not outside.store.exists()
    assert http_placement.requests == []


def test_a_driver_that_fails_when_it_is_made(
    outside: AgentHere, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (RuntimeError("no\x1b[31m luck"), SystemExit(7), AssertionError("impossible")):
        monkeypatch.setattr(ThirdPartyDriver, "__init__", raising(error))
        problem = the_only(refused(outside, http_placement, tracebacks=1))
        assert (
            f"[DEFAULT] compute_driver = outside: it failed with {type(error).__name__}"
            in problem["message"]
        )
    assert not outside.store.exists()


# --- raising, hanging, nonsense -------------------------------------------------------------------


def raising(error: BaseException) -> Callable[..., Any]:
    def method(*_: Any, **__: Any) -> Any:
        raise error

    return method


def returning(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


@pytest.fixture
def hanging() -> Iterator[Callable[..., Any]]:
    """A method that does not come back before the test's end."""
    ended = threading.Event()
    yield lambda *_, **__: ended.wait(300)
    ended.set()


def known(agent: AgentHere) -> AgentHere:
    """The agent once its node is in Placement, so that nothing but the driver keeps it from being
    in sync.
    """
    assert agent.run("--once").code == 0
    return agent


def shape_that_fails(
    self: ThirdPartyDriver, tree: ProviderTree, facts: HostFacts, allocations: Any
) -> None:
    tree.new_child("half-done", tree.roots[0].uuid)
    raise KeyError("no such device")


FAULTS: dict[str, tuple[str, Callable[..., Any], str, str]] = {
    "start raises": (
        "start",
        raising(OSError("no bus")),
        "driver.failed",
        "driver outside: start raised OSError: no bus",
    ),
    "start is not ready": (
        "start",
        raising(NotReady("the backend sleeps", "wake it")),
        "driver.not-ready",
        "the backend sleeps",
    ),
    "nodes raises": (
        "nodes",
        raising(ValueError("two\nlines")),
        "driver.failed",
        "driver outside: nodes raised ValueError: two\\nlines",
    ),
    "nodes exits": (
        "nodes",
        raising(SystemExit(7)),
        "driver.failed",
        "driver outside: nodes raised SystemExit",
    ),
    "nodes is nothing": (
        "nodes",
        returning(None),
        "driver.failed",
        "driver outside: its nodes are not names by uuid, but None",
    ),
    "nodes is a list": (
        "nodes",
        returning(["node-a"]),
        "driver.failed",
        "its nodes are not names by uuid",
    ),
    "node without uuid": (
        "nodes",
        returning({"node-a": "node-a"}),
        "driver.failed",
        "its nodes are not names by uuid",
    ),
    "node without name": (
        "nodes",
        returning({UUID: None}),
        "driver.failed",
        "its nodes are not names by uuid",
    ),
    "facts raises": (
        "facts",
        raising(RuntimeError("broken pipe")),
        "driver.failed",
        "driver outside: facts of node node-a raised RuntimeError: broken pipe",
    ),
    "facts exits": (
        "facts",
        raising(SystemExit(7)),
        "driver.failed",
        "facts of node node-a raised SystemExit",
    ),
    "facts is nothing": (
        "facts",
        returning(None),
        "driver.failed",
        "its facts of node-a are no HostFacts but NoneType",
    ),
    "shape raises": (
        "shape",
        shape_that_fails,
        "driver.failed",
        "driver outside: shape of node node-a raised KeyError: 'no such device'",
    ),
    "capabilities raise": (
        "capabilities_as_traits",
        raising(TypeError("no")),
        "driver.failed",
        "raised TypeError: no",
    ),
    "capabilities are a list": (
        "capabilities_as_traits",
        returning(["COMPUTE_NODE"]),
        "driver.failed",
        "driver outside: its capabilities as traits: they = ['COMPUTE_NODE']: no mapping",
    ),
    "capabilities are texts": (
        "capabilities_as_traits",
        returning({"COMPUTE_NODE": "yes"}),
        "driver.failed",
        "driver outside: its capabilities as traits: COMPUTE_NODE = 'yes': neither True nor False",
    ),
    "name is too long": (
        "nodes",
        returning({UUID: "x" * 201}),
        "tree.invalid",
        "its name has 201 characters, Placement takes 1 to 200",
    ),
    "name is empty": ("nodes", returning({UUID: ""}), "tree.invalid", "its name has 0 characters"),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_driver_that_raises_or_answers_nonsense(
    outside: AgentHere, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    method, replacement, code, told = FAULTS[fault]
    known(outside)
    monkeypatch.setattr(replacement, "__name__", method)
    monkeypatch.setattr(ThirdPartyDriver, method, replacement, raising=False)
    problem = the_only(refused(outside, http_placement, tracebacks=int("raised " in told)))
    assert problem["code"] == code
    assert told in problem["message"]


def test_the_exception_of_a_driver_is_in_the_log_with_its_traceback_once(
    outside: AgentHere, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    def facts(_driver: object, name: str) -> HostFacts:
        if name == "node-3":
            raise KeyError("another kind")
        raise RuntimeError(f"of {name}")

    monkeypatch.setattr(
        ThirdPartyDriver,
        "nodes",
        returning({f"{UUID[:-1]}{number}": f"node-{number}" for number in range(1, 5)}),
    )
    monkeypatch.setattr(ThirdPartyDriver, "facts", facts)
    result = outside.run("--once", "--format", "json")
    assert [node["errors"][0]["code"] for node in result.json["nodes"]] == ["driver.failed"] * 4
    assert result.stderr.count("Traceback (most recent call last)") == 2
    assert result.stderr.count("in facts\n") == 2


WRONG_FACTS = {
    "another name": (
        lambda facts: replace(facts, name="node-b"),
        "name = 'node-b': that is another node",
    ),
    "a text for a number": (
        lambda facts: replace(facts, memory_mib="a lot"),
        "memory_mib = 'a lot': no whole number of at least 0",
    ),
    "not a number": (
        lambda facts: replace(facts, memory_mib=float("nan")),
        "memory_mib = nan: no whole number",
    ),
    "infinite": (
        lambda facts: replace(facts, disk_gib=float("inf")),
        "disk_gib = inf: no whole number",
    ),
    "a fraction": (lambda facts: replace(facts, disk_gib=1.5), "disk_gib = 1.5: no whole number"),
    "true": (lambda facts: replace(facts, disk_gib=True), "disk_gib = True: no whole number"),
    "negative": (
        lambda facts: replace(facts, disk_gib=-1),
        "disk_gib = -1: no whole number of at least 0",
    ),
    "negative memory of a cell": (
        lambda facts: replace(facts, numa=Topology((Cell(0, frozenset({0}), -5),))),
        "numa.cells[0].memory_mib = -5: no whole",
    ),
    "a time that is none": (
        lambda facts: replace(facts, taken_at=float("nan")),
        "taken_at = nan: no finite number",
    ),
    "CPUs that are no set": (
        lambda facts: replace(facts, cpu=CpuFacts("0-3")),
        "cpu.online = '0-3': no set",
    ),
    "CPUs that are texts": (
        lambda facts: replace(facts, cpu=CpuFacts(frozenset({"0"}))),
        "cpu.online = '0': no whole number",
    ),
    "devices that are none": (
        lambda facts: replace(facts, pci=("0000:81:00.0",)),
        "pci[0] = '0000:81:00.0': no PciDevice",
    ),
    "a list of devices": (lambda facts: replace(facts, pci=[]), "pci = []: no tuple"),
    "traits that are a set": (
        lambda facts: replace(facts, traits={"HW_CPU_X86_AVX"}),
        "traits = {'HW_CPU_X86_AVX'}: no mapping",
    ),
    "a section that there is not": (
        lambda facts: replace(facts, incomplete={"cpus": "no"}),
        "incomplete = 'cpus': none of cpu, memory",
    ),
    "several": (
        lambda facts: replace(facts, disk_gib="x", hypervisor_version=-1),
        "hypervisor_version = -1: no whole number of at least 0; disk_gib",
    ),
}


@pytest.mark.long
def test_facts_that_cannot_be_are_errors_of_the_driver_that_name_field_and_value(
    outside: AgentHere, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(outside)
    before = http_placement.dump()
    for change, told in WRONG_FACTS.values():
        monkeypatch.setattr(
            ThirdPartyDriver, "facts", lambda self, name, change=change: change(facts_of(name))
        )
        result = outside.run("--once", "--format", "json")
        problem = the_only([error for node in result.json["nodes"] for error in node["errors"]])
        assert (result.code, problem["code"]) == (1, "driver.failed")
        assert f"driver outside: its facts of node-a: {told}" in problem["message"]
        assert "whoever wrote the driver" in problem["remedy"]
    assert http_placement.dump() == before


SHAPES = {
    "not a number": float("nan"),
    "infinite": float("inf"),
    "negative": -1,
    "a text": "4",
    "nothing": None,
}


def test_a_tree_that_a_driver_shapes_of_nonsense_is_no_bug_of_the_agents(
    outside: AgentHere, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(outside)
    for total_of in SHAPES.values():
        for field in ("total", "allocation_ratio"):

            def shape(
                _self: Any,
                tree: ProviderTree,
                facts: HostFacts,
                _allocations: Any,
                record: Any = {"total": 4, field: total_of},  # noqa: B006
            ) -> None:
                tree.update_inventory(facts.name, {"VCPU": record})

            monkeypatch.setattr(ThirdPartyDriver, "shape", shape, raising=False)
            result = outside.run("--once", "--format", "json")
            errors = [error for node in result.json["nodes"] for error in node["errors"]]
            assert errors, (field, total_of)
            assert "agent.bug" not in {error["code"] for error in errors}, (field, total_of, errors)


@pytest.mark.long
@pytest.mark.parametrize("method", ["start", "nodes", "facts", "shape"])
def test_a_driver_that_hangs_is_abandoned_at_its_deadline(
    outside: AgentHere,
    http_placement: HttpPlacement,
    monkeypatch: pytest.MonkeyPatch,
    hanging: Callable[..., Any],
    method: str,
) -> None:
    known(outside)
    monkeypatch.setattr(ThirdPartyDriver, method, hanging, raising=False)
    before, begun = http_placement.dump(), time.monotonic()
    result = outside.run("--once", "--format", "json")
    assert time.monotonic() - begun < 30
    assert result.code == 1
    problem = the_only(
        [
            *result.json["errors"],
            *(error for node in result.json["nodes"] for error in node["errors"]),
        ]
    )
    assert problem["code"] == "driver.timeout"
    assert "driver outside" in problem["message"]
    assert "did not answer within 1 s" in problem["message"]
    assert "deadline" in problem["remedy"]
    assert http_placement.dump() == before


def test_a_driver_that_hangs_when_it_stops_does_not_keep_the_agent(
    outside: AgentHere,
    http_placement: HttpPlacement,
    monkeypatch: pytest.MonkeyPatch,
    hanging: Callable[..., Any],
) -> None:
    monkeypatch.setattr("agent.bootstrap.fleet.STOP_DEADLINE", 0.2)
    monkeypatch.setattr(ThirdPartyDriver, "stop", hanging)
    result = outside.run("--once")
    assert result.code == 0
    assert "the driver did not stop" in result.stderr
    assert "node-a" in inventories(http_placement)


FIRST, SECOND = UUID, "8c1f7a52-3f0c-4c0b-9d57-5f3c9e1a2b02"


@pytest.mark.parametrize(
    "wrong",
    [
        raising(RuntimeError("broken")),
        returning(None),
        lambda self, name: replace(facts_of(name), memory_mib="a lot"),
    ],
    ids=["raises", "nothing", "nonsense"],
)
def test_one_bad_node_does_not_keep_the_others(
    outside: AgentHere,
    http_placement: HttpPlacement,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Callable[..., Any],
) -> None:
    monkeypatch.setattr(ThirdPartyDriver, "nodes", returning({FIRST: "bad", SECOND: "good"}))
    monkeypatch.setattr(
        ThirdPartyDriver,
        "facts",
        lambda self, name: wrong(self, name) if name == "bad" else facts_of(name),
    )
    result = outside.run("--once", "--format", "json")
    assert result.code == 3
    states = {node["name"]: (node["state"], len(node["errors"])) for node in result.json["nodes"]}
    assert states == {"bad": ("failed", 1), "good": ("changed", 0)}
    assert list(inventories(http_placement)) == ["good"]


def facts_of(name: str, **changed: Any) -> HostFacts:
    return replace(
        HostFacts(
            name,
            time.time(),
            "third-party",
            cpu=CpuFacts(frozenset(range(4)), "x86_64"),
            memory_mib=2048,
            disk_gib=10,
        ),
        **changed,
    )


# --- half the facts -------------------------------------------------------------------------------

HALF: Mapping[str, Any] = {
    "memory_mib": 7,
    "cpu": None,
    "incomplete": {"memory": "the balloon\nburst", "cpu": "no answer"},
}


def test_half_the_facts_of_a_new_node_are_not_enough(
    outside: AgentHere, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outside.run("--once", "--node", "nobody").code == 1
    monkeypatch.setattr(ThirdPartyDriver, "facts", lambda self, name: facts_of(name, **HALF))
    problem = the_only(refused(outside, http_placement))
    assert problem["code"] == "driver.not-ready"
    assert "the first facts of node-a are not complete" in problem["message"]
    assert "memory: the balloon\\nburst" in problem["message"]


def test_half_the_facts_of_a_known_node_leave_the_last_good_values(
    outside: AgentHere, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ThirdPartyDriver, "facts", lambda self, name: facts_of(name))
    known(outside)
    good = inventories(http_placement)["node-a"]
    problems = refused_in_part(outside, http_placement, monkeypatch, HALF)
    assert [problem["message"] for problem in problems] == [
        "facts of node-a: cpu is not complete: no answer",
        "facts of node-a: memory is not complete: the balloon\\nburst",
    ]
    assert inventories(http_placement)["node-a"] == good
    # What was read in full is brought up to date all the same.
    problems = refused_in_part(outside, http_placement, monkeypatch, {**HALF, "disk_gib": 20})
    assert len(problems) == 2
    assert inventories(http_placement)["node-a"] == {**good, "DISK_GB": total(20)}


def refused_in_part(
    agent: AgentHere,
    placement: HttpPlacement,
    monkeypatch: pytest.MonkeyPatch,
    facts: Mapping[str, Any],
) -> list[dict[str, Any]]:
    monkeypatch.setattr(ThirdPartyDriver, "facts", lambda self, name: facts_of(name, **facts))
    result = agent.run("--once", "--format", "json")
    (node,) = result.json["nodes"]
    assert (result.code, node["state"]) == (3, "degraded")
    problems: list[dict[str, Any]] = node["errors"]
    assert all(problem["remedy"] for problem in problems)
    return problems


# --- names ----------------------------------------------------------------------------------------

NAMES = [
    "rack 7/a&b#c+d",
    "50% of %41?x=1;y",
    "Прізвище 機器 ü✓",
    "x" * 200,
    "😀" * 200,
    "'; DROP TABLE--",
    "[bold]not markup[/bold]",
    "..",
    "$$NODE {host}",
]


@pytest.mark.long
@pytest.mark.parametrize("name", [NAMES[0], NAMES[2], NAMES[4], NAMES[7], NAMES[8]])
def test_a_host_with_any_name_is_found_again(
    agent: AgentHere, http_placement: HttpPlacement, name: str
) -> None:
    agent.configure(on(http_placement, "fake.small", {"DEFAULT": {"host": name}}))
    first = agent.run("--once", "--format", "json")
    assert first.code == 0, first
    assert list(inventories(http_placement)) == [name]
    http_placement.clear()
    second = agent.run("--once")
    assert second.code == 0
    assert http_placement.writes() == []
    assert f"✓ {name}  in-sync" in second.stdout
    assert (
        agent.run("--once", "--format", "json", "--node", glob_of(name)).json["nodes"][0]["state"]
        == "in-sync"
    )
    assert agent.run("tree").stdout.startswith(name)
    # A host of that name but another disk is told apart by the name alone, asked for as it is.
    (agent.store / "compute_id").unlink()
    (agent.store / "database/store.sqlite").unlink()
    stranger = agent.run("--once", "--dry-run", "--format", "json")
    assert [error["code"] for error in stranger.json["nodes"][0]["errors"]] == [
        "placement.name-conflict"
    ]


def glob_of(name: str) -> str:
    """The name as a pattern that only it matches."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def test_children_with_any_name(http_placement: HttpPlacement, tmp_path: Path) -> None:
    providers = [
        {"name": name, "inventories": {"CUSTOM_X": {"total": 1}}}
        for name in NAMES
        if "$" not in name
    ]
    agent = from_file(http_placement, tmp_path / "agent", {"providers": providers})
    assert agent.run("--once").code == 0
    assert set(inventories(http_placement)) == {"node-a", *(entry["name"] for entry in providers)}
    assert agent.run("--once", "--format", "json").json["nodes"][0]["operations"] == []
    host_file(agent, {"providers": providers[:1]})
    assert agent.run("--once").code == 0
    assert set(inventories(http_placement)) == {"node-a", NAMES[0]}


@pytest.mark.parametrize("name", ["x" * 201, "", "two\nlines", "bell\x07", "\u202eback"])
def test_children_with_impossible_names_in_a_host_file(
    http_placement: HttpPlacement, tmp_path: Path, name: str
) -> None:
    agent = from_file(http_placement, tmp_path / "agent", {"memory_mib": 1024})
    known(agent)
    host_file(agent, {"memory_mib": 2048, "providers": [{"name": name}]})
    problem = the_only(refused(agent, http_placement))
    assert problem["message"].startswith(f"{agent.folder / 'host.yaml'}:1:")
    assert " providers[0].name: " in problem["message"]


@pytest.mark.parametrize("name", ["two\nlines", "esc\x1b[31mred", "\u202eback"])
def test_names_from_elsewhere_are_shown_with_control_characters_escaped(
    outside: AgentHere, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A hypervisor's name that no operator would choose: it is taken as it is, and harms no
    terminal.
    """
    monkeypatch.setenv("THIRD_PARTY_NODE", name)
    shown = name.encode("unicode_escape").decode()
    text = outside.run("--once")
    assert text.code == 0
    assert list(inventories(http_placement)) == [name]
    assert f"✓ {shown}  changed" in text.stdout
    assert name not in text.stdout + text.stderr
    document = outside.run("--once", "--format", "json")
    assert (document.json["nodes"][0]["name"], document.json["nodes"][0]["state"]) == (
        name,
        "in-sync",
    )
    assert shown in outside.run("tree").stdout


def test_a_child_whose_name_is_too_long_is_left_out_and_named(
    outside: AgentHere, http_placement: HttpPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shape(
        self: ThirdPartyDriver, tree: ProviderTree, facts: HostFacts, allocations: Any
    ) -> None:
        for name in ("x" * 201, "y" * 200):
            tree.new_child(name, tree.roots[0].uuid)
            tree.update_inventory(name, {"FPGA": {"total": 1}})

    monkeypatch.setattr(ThirdPartyDriver, "shape", shape, raising=False)
    result = outside.run("--once", "--format", "json")
    assert result.code == 3
    problem = the_only(result.json["nodes"][0]["errors"])
    assert "x" * 60 in problem["message"]
    assert "201 characters, Placement takes 1 to 200" in problem["message"]
    assert set(inventories(http_placement)) == {"node-a", "y" * 200}


def test_options_of_a_driver_of_somebody_else_are_not_called_unknown(
    outside: AgentHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_options(_driver: object, conf: cfg.ConfigOpts) -> None:
        conf.register_opts(
            [cfg.StrOpt("colour", deprecated_name="color"), cfg.StrOpt("size")], "outside_driver"
        )

    monkeypatch.setattr(ThirdPartyDriver, "__init__", with_options)
    text = outside.config_file.read_text()
    outside.config_file.write_text(f"{text}[outside_driver]\ncolor = red\nsize = 3\ncolur = blue\n")
    (told,) = outside.run("config", "check", "--format", "json").json["problems"]
    assert (
        "[outside_driver] colur: there is no such option: did you mean colour?" in told["message"]
    )
