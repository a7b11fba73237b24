"""What drifts is known for as long as it does: shown by status, drift, the API and the figures,
also while Placement is away.
"""

import re

import pytest

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from tests.functional.test_daemon import HOST, Host
from tests.support.daemon_host import ROOT
from tests.support.http_placement import HttpPlacement
from tests.support.proxy import FaultProxy
from tests.support.service_manager import until
from tests.support.system import AgentHere

GUEST = "7d1b5a52-0000-4a8b-9c46-0000000000aa"
STRANGER = f"guests:\n- {{uuid: {GUEST}, name: stranger, memory_mib: 512, vcpus: 1}}\n"


def write(host, *more):
    new = host.file.with_suffix(".new")
    new.write_text(HOST.format(root=ROOT, vcpus=8) + "".join(more))
    new.replace(host.file)


def figures(client: ApiClient) -> dict[str, float]:
    lines = client.metrics().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


@pytest.fixture
def host(http_placement: HttpPlacement, proxy: FaultProxy, tmp_path):
    return Host(tmp_path / "agent", proxy.url)


def node(client):
    try:
        (found,) = client.nodes()
    except (ApiUnreachable, ApiProblem, ValueError):
        return None
    return found


@pytest.mark.long
def test_drift_stays_during_an_outage_and_goes_once_it_is_mended(
    host: Host, proxy: FaultProxy
) -> None:
    write(host, STRANGER)
    agent, client = AgentHere(host.folder, host.config), ApiClient(host.command.socket)
    with host.service.running() as service:
        until(lambda: (found := node(client)) and found["state"] == "in-sync", lambda: service)
        well = node(client)
        assert (well["drift"], well["drift_kinds"], well["drift_warnings"]) == (
            1,
            {"unknown-domain": 1},
            1,
        )
        assert well["last_good_audit_at"] == well["audited_at"]
        before = figures(client)
        status = agent.run("status", "--detailed-exitcode")
        assert status.code == 2
        assert "drift: 1 unknown-domain" in status.stdout
        assert agent.run("status").code == 0
        assert (
            before[
                'compute_node_agent_node_drift{kind="unknown-domain",node="node-a",severity="warning"}'
            ]
            == 1
        )

        with proxy.down():
            until(lambda: (found := node(client)) and found["state"] == "failed", lambda: service)
            away = node(client)
            assert (away["drift"], away["drift_kinds"]) == (1, {"unknown-domain": 1})
            assert well["last_good_audit_at"] <= away["last_good_audit_at"] < away["audited_at"]
            shown = client.node(ROOT)
            assert [one["kind"] for one in shown["drift"]] == ["unknown-domain"]
            assert shown["last_good_audit_at"] == away["last_good_audit_at"]
            found = figures(client)
            assert found['compute_node_agent_drift{kind="unknown-domain"}'] == 1
            assert (
                found[
                    'compute_node_agent_node_drift{kind="unknown-domain",node="node-a",severity="warning"}'
                ]
                == 1
            )
            assert found['compute_node_agent_node_state{node="node-a",state="failed"}'] == 1
            for beginning in ("", "node_"):
                label = '{node="node-a"}' if beginning else ""
                last, good = (
                    found[f"compute_node_agent_{beginning}last_{word}timestamp_seconds{label}"]
                    for word in ("audit_", "good_audit_")
                )
                assert (
                    before[
                        f"compute_node_agent_{beginning}last_good_audit_timestamp_seconds{label}"
                    ]
                    <= good
                    < last
                )
            status = agent.run("status", "--detailed-exitcode", "--format", "json")
            assert (
                status.code,
                status.json["exit_code"],
                status.json["nodes"][0]["drift_kinds"],
            ) == (2, 2, {"unknown-domain": 1})
            assert re.search(
                r"drift: 1 unknown-domain.*last well \d+ s ago",
                " ".join(agent.run("status").stdout.split()),
            )

            drift = agent.run("drift", "--node", "node-?", "--detailed-exitcode")
            assert drift.code == 2
            assert "unknown-domain" in drift.stdout
            assert " guests import" in " ".join(drift.stdout.split())
            assert "the last good audit was" in drift.stdout
            (listed,) = agent.run("drift", "--format", "json").json["nodes"]
            assert [
                (one["kind"], one["consumer"], bool(one["remedy"])) for one in listed["drift"]
            ] == [("unknown-domain", GUEST, True)]
            unknown = agent.run("drift", "--node", "node-x", "--format", "json")
            assert (unknown.code, unknown.json["errors"][0]["remedy"]) == (1, "it has node-a")

        write(host)
        until(
            lambda: (found := node(client)) and found["state"] == "in-sync" and not found["drift"],
            lambda: service,
        )
        assert figures(client)['compute_node_agent_drift{kind="unknown-domain"}'] == 0
        until(lambda: agent.run("status", "--detailed-exitcode").code == 0)
        assert "no drift" in agent.run("drift").stdout
        service.stop()
    assert agent.run("status", "--detailed-exitcode", "--format", "json").json["exit_code"] == 1
    # The store has what the last audit found, and nobody knows whether it is so still.
    none = agent.run("drift", "--detailed-exitcode")
    assert none.code == 1
    assert "node-a  in-sync\n  as audits have found it since 20" in none.stdout
    assert "no drift" in none.stdout
