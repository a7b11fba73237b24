"""Without a daemon, drift and status say what audits found, and since when."""

import time
from pathlib import Path

from tests.functional.cli.setups import configured, from_file, host_file
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere

GUEST = "5f9c2a34-7d1e-4a8b-9c46-00000000e1f2"
HOST = {
    "uuid": "5f9c2a34-7d1e-4a8b-9c46-00000000e1f1",
    "cpu": {"online": "0-7"},
    "memory_mib": 16384,
    "guests": [{"uuid": GUEST, "name": "one", "vcpus": 2, "memory_mib": 2048}],
}


def drift(agent: AgentHere) -> tuple[list[str], float]:
    """The kinds of the only node's drift, and since when."""
    (node,) = agent.run("drift", "--format", "json").json["nodes"]
    return [one["kind"] for one in node["drift"]], node["found_at"]


def test_what_audits_found_is_told_until_one_finds_something_else(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = from_file(http_placement, tmp_path / "agent", HOST)
    assert agent.run("drift").stdout == "no nodes\n"
    begun = time.time()
    assert agent.run("--once").code == 0
    kinds, since = drift(agent)
    assert kinds == ["unknown-domain"]
    assert begun <= since <= time.time()
    (node,) = agent.run("status", "--format", "json").json["nodes"]
    assert (node["state"], node["drift_kinds"]) == ("in-sync", {"unknown-domain": 1})
    assert (node["drift"], node["drift_warnings"], node["found_at"]) == (1, 1, since)
    for command, told in (("drift", " guests import"), ("status", "drift: 1 unknown-domain")):
        shown = agent.run(command, "--offline", "--detailed-exitcode")
        # Nobody knows whether it is so still.
        assert shown.code == 1
        text = " ".join(shown.stdout.split())
        assert told in text
        assert "as audits have found it since 20" in text
    page = tmp_path / "page.html"
    assert agent.run("report", str(page)).code == 0
    for told in ("unknown-domain", "in-sync", "as audits have found it since 20"):
        assert told in page.read_text()
    # Another audit that finds the same changes nothing.
    assert agent.run("--once").code == 0
    assert drift(agent) == (kinds, since)
    assert agent.run("guests", "import").code == 0
    assert agent.run("--once", "--dry-run").code == 0
    assert drift(agent) == (kinds, since)
    assert agent.run("--once").code == 0
    kinds, later = drift(agent)
    assert kinds == ["missing-allocation"]
    assert later > since


def test_the_errors_of_a_node_that_was_never_written_are_told(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = from_file(http_placement, tmp_path / "agent", HOST)
    with agent.config_file.open("a") as config:
        config.write("[compute]\ncpu_dedicated_set = 90\n")
    failed = agent.run("--once", "--format", "json").json["nodes"][0]
    assert failed["state"] == "failed"
    (node,) = agent.run("status", "--format", "json").json["nodes"]
    assert (node["state"], node["errors"]) == ("failed", failed["errors"])
    # Of a node that could not be judged nobody knows that there is no drift.
    assert "no drift is known: the last audit was incomplete" in agent.run("drift").stdout
    # The same node under its right uuid is the only one then.
    right = {**HOST, "uuid": "5f9c2a34-7d1e-4a8b-9c46-00000000e1f3", "guests": []}
    agent = from_file(http_placement, tmp_path / "agent", right)
    assert agent.run("--once").code == 0
    (node,) = agent.run("status", "--format", "json").json["nodes"]
    assert (node["uuid"], node["state"]) == (right["uuid"], "in-sync")
    page = tmp_path / "page.html"
    for dedicated, told in (
        ("90", "no drift is known: the last audit was incomplete"),
        ("", "no drift<"),
    ):
        assert agent.run("--once", "--compute-cpu_dedicated_set", dedicated).code == int(
            bool(dedicated)
        )
        assert agent.run("report", str(page)).code == 0
        assert told in page.read_text()


def test_a_pass_that_failed_is_told_with_what_was_found_before(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = from_file(http_placement, tmp_path / "agent", HOST)
    assert agent.run("--once").code == 0
    away = ("--once", "--placement-endpoint", "http://127.0.0.1:1/placement")
    found = []
    for _ in range(2):
        assert agent.run(*away).code == 1
        (node,) = agent.run("status", "--format", "json").json["nodes"]
        found.append((node["state"], [one["code"] for one in node["errors"]], node["found_at"]))
    assert found[0][:2] == ("failed", ["placement.unreachable"])
    assert found[0] == found[1]
    assert drift(agent)[0] == ["unknown-domain"]
    assert agent.run("drift").stdout.startswith("node-a  failed")
    assert agent.run("--once").code == 0
    (node,) = agent.run("status", "--format", "json").json["nodes"]
    assert (node["state"], node["errors"]) == ("in-sync", [])


def test_what_another_host_found_and_what_was_found_before_observing_is_not_told(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    shared = {"connection": f"sqlite:///{tmp_path / 'shared.sqlite'}"}
    agent, other = AgentHere(tmp_path / "agent"), AgentHere(tmp_path / "other")
    configured(agent, http_placement, HOST, store=shared)
    assert agent.run("--once").code == 0
    assert drift(agent)[0] == ["unknown-domain"]
    configured(other, http_placement, {**HOST, "name": "b"}, store=shared, DEFAULT={"host": "b"})
    (node,) = other.run("drift", "--format", "json").json["nodes"]
    assert (node["name"], node["drift"], node["found_at"]) == ("node-a", None, None)
    configured(agent, http_placement, HOST, store=shared, DEFAULT={"mode": "observe"})
    text = agent.run("drift").stdout
    assert "unknown: only an audit finds it" in text
    assert "unknown-domain" not in text


def test_what_was_found_of_a_node_goes_with_it_after_a_pass_over_all_nodes(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    def node(name: str) -> dict[str, object]:
        guest = {"uuid": GUEST[:-1] + name, "name": name, "vcpus": 2, "memory_mib": 2048}
        return {**HOST, "uuid": f"{HOST['uuid']}"[:-1] + name, "name": name, "guests": [guest]}

    one, two = node("a"), node("b")
    agent = from_file(http_placement, tmp_path / "agent", {"nodes": [one, two]})
    assert agent.run("--once").code == 0
    for nodes, words, known in (
        ([one], ("--node", "a"), ["a", "b"]),
        ([one], (), ["a"]),
        ([one, two], (), ["a", "b"]),
    ):
        host_file(agent, {"nodes": nodes})
        assert agent.run("--once", *words).code == 0
        found = agent.run("drift", "--format", "json").json["nodes"]
        assert [node["name"] for node in found if node["drift"]] == known


def test_many_guests_with_one_reason_are_told_together(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    uuids = [f"5f9c2a34-7d1e-4a8b-9c46-00000000e2{number:02}" for number in range(7)]
    guests = [
        {"uuid": uuid, "name": f"guest-{uuid[-2:]}", "vcpus": 1, "memory_mib": 512}
        for uuid in uuids
    ]
    agent = from_file(http_placement, tmp_path / "agent", {**HOST, "guests": guests})
    for shown in (agent.run("--once"), agent.run("drift")):
        text = shown.stdout
        assert text.count("unknown-domain") == text.count(" guests import") == 1
        assert "7 times: domain runs here, and no record knows it" in " ".join(text.split())
        named = [uuid for uuid in uuids if uuid in text]
        assert len(named) == 5
        assert f"guest-{named[0][-2:]} ({named[0]}, 512 MiB)" in text
        assert "and 2 more: see all with --format json" in text
    (node,) = agent.run("drift", "--format", "json").json["nodes"]
    assert {one["consumer"] for one in node["drift"]} == set(uuids)
    # Of a few, each has its own remedy.
    assert agent.run("guests", "import").code == 0
    text = agent.run("--once").stdout
    assert "7 times: guest is counted here" in text
    assert "guests forget UUID" in text
    agent = from_file(http_placement, tmp_path / "few", {**HOST, "guests": guests[:5]})
    assert agent.run("--once").stdout.count("unknown-domain") == 5
