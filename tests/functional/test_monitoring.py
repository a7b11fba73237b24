"""What Prometheus and Grafana are given: figures at a TCP address if there is one, alert rules and
a dashboard that name nothing that there is not.
"""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.functional.test_daemon import Host
from tests.support.backends import missing
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.reference import reference_pages
from tests.support.service_manager import until
from tests.support.system import AgentHere

RULES = CHECKOUT / "etc" / "prometheus" / "compute-node-agent.rules.yaml"
DASHBOARD = CHECKOUT / "etc" / "grafana" / "compute-node-agent.json"
NAME = re.compile(r"\bcompute_node_agent_[a-z_]+")
STANDS_FOR = {"$__rate_interval": "5m", "$instance": ".*", "$node": ".*"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def exposed(text: str) -> frozenset[str]:
    """The names of all series that a text of figures has, or would have once there is something to
    count.
    """
    kinds = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    return frozenset(
        f"{name}{end}"
        for name, kind in kinds
        for end in (
            "",
            *(("_bucket", "_sum", "_count") if kind in ("histogram", "summary") else ()),
        )
    )


@pytest.fixture(scope="module")
def figures(
    http_placement_of_module: HttpPlacement, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Host]]:
    """A daemon that has done one audit, and the address of its figures."""
    host = Host(tmp_path_factory.mktemp("monitored") / "agent", http_placement_of_module.url)
    address = f"127.0.0.1:{free_port()}"
    host.set("api", metrics_address=address)
    with host.service.running() as service:
        service.wait_for("READY", "1")
        until(
            lambda: requests.get(f"http://{address}/readyz", timeout=30).status_code == 200,
            lambda: service,
        )
        yield f"http://{address}", host


@pytest.fixture(scope="module")
def http_placement_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpPlacement]:
    placement = HttpPlacement(tmp_path_factory.mktemp("placement"))
    placement.start()
    yield placement
    placement.stop()


def test_the_address_answers_figures_and_health_and_nothing_else(figures: tuple[str, Host]) -> None:
    url, host = figures
    health = requests.get(f"{url}/healthz", timeout=30)
    assert (health.status_code, set(health.json())) == (200, {"state", "status"})
    assert "compute_node_agent_build_info" in requests.get(f"{url}/metrics", timeout=30).text
    for path in ("/v1/nodes", "/v1/claims", "/v1/reload", "/v1/audits", "/", "/metrics/x"):
        for method in ("GET", "POST", "DELETE"):
            answer = requests.request(method, f"{url}{path}", json={}, timeout=30)
            assert (answer.status_code, answer.json()["status"]) == (404, 404), (
                method,
                path,
                answer.text,
            )
    for method in ("POST", "PUT", "DELETE"):
        assert requests.request(method, f"{url}/metrics", timeout=30).status_code == 405
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as raw:
        raw.sendall(b"nonsense\r\n\r\n")
        assert b" 400 " in raw.recv(4096)
    assert "Traceback" not in host.service.log


def test_placement_and_driver_are_counted(figures: tuple[str, Host]) -> None:
    text = requests.get(f"{figures[0]}/metrics", timeout=30).text
    for series in (
        'placement_replies_total{method="GET",status="200"}',
        'placement_request_seconds_count{method="GET"}',
        'driver_call_seconds_count{call="facts",outcome="done"}',
        'operations_total{op="create-provider",status="done"}',
        'node_operations_total{node="node-a",op="create-provider",status="done"}',
        'node_last_good_audit_timestamp_seconds{node="node-a"}',
    ):
        found = re.search(rf"^compute_node_agent_{re.escape(series)} (\S+)$", text, re.MULTILINE)
        assert found is not None, series
        assert float(found[1]) > 0


def expressions(dashboard: Mapping[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.mark.long
@pytest.mark.parametrize("file", [RULES, DASHBOARD], ids=lambda one: one.name)
def test_every_figure_that_they_name_is_one_that_the_agent_gives(
    figures: tuple[str, Host], file: Path
) -> None:
    given = exposed(requests.get(f"{figures[0]}/metrics", timeout=30).text)
    named = set(NAME.findall(file.read_text(encoding="utf-8")))
    assert len(named) > 5
    assert named - given == set()


def promtool(*arguments: str | Path) -> None:
    found = shutil.which("promtool")
    if found is None:
        missing("promtool", "apt-get install prometheus")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_are_rules_that_prometheus_takes_and_fire_as_they_should() -> None:
    promtool("check", "rules", "--lint-fatal", RULES)
    promtool("test", "rules", CHECKOUT / "tests" / "functional" / "alerts_test.yaml")


def test_the_dashboard_is_one_that_grafana_can_show(tmp_path: Path) -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    rules = []
    for number, text in enumerate(expressions(dashboard)):
        for name, value in STANDS_FOR.items():
            text = text.replace(name, value)
        assert "$" not in text
        rules.append({"record": f"panel:{number}", "expr": text})
    # As rules, because promtool has no other way to look at expressions.
    file = tmp_path / "dashboard.json"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", file)


BAD = [
    "9653",
    "127.0.0.1",
    "localhost:9653",
    "127.0.0.1:0",
    "127.0.0.1:65536",
    "::1:9653",
    "[127.0.0.1]:9653",
    "/run/x.sock",
    "127.0.0.1:http",
]


def test_a_bad_address_is_a_clear_error(tmp_path: Path) -> None:
    agent = AgentHere(tmp_path / "agent")
    for address in BAD:
        agent.configure(
            {"DEFAULT": {"compute_driver": "fake"}, "api": {"metrics_address": address}}
        )
        (problem,) = agent.run("config", "check", "--format", "json").json["errors"]
        assert problem["message"] == f"[api] metrics_address = {address}: no IP address with a port"
        assert "127.0.0.1:9653" in problem["remedy"]
    for address, warned in (
        ("127.0.0.1:9653", False),
        ("[::1]:9653", False),
        ("0.0.0.0:9653", True),
    ):
        agent.configure(
            {"DEFAULT": {"compute_driver": "fake"}, "api": {"metrics_address": address}}
        )
        checked = agent.run("config", "check", "--format", "json")
        assert (
            checked.code,
            any("no loopback address" in one for one in checked.json["warnings"]),
        ) == (0, warned)


def test_an_address_that_somebody_else_has_ends_the_start(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        host = Host(tmp_path / "agent", http_placement.url)
        host.set("api", metrics_address=f"127.0.0.1:{port}")
        ended = host.command.run()
    assert ended.code == 1
    assert (
        f"[api] metrics_address = 127.0.0.1:{port}: the agent cannot listen there: Address already in use"
        in " ".join(ended.stderr.split())
    )
    assert not host.command.socket.exists()


def test_every_figure_is_in_the_reference_and_every_one_there_is_given(
    figures: tuple[str, Host],
) -> None:
    text = requests.get(f"{figures[0]}/metrics", timeout=30).text
    given = {
        name.removeprefix("compute_node_agent_")
        for name in re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    }
    assert given == {name for name, *_ in reference_pages().metrics()}
