"""nova-compute starts with the agent's engine, and nova's own functional tests pass with it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from bench.budgets import budgets_of_host
from bench.matrix import Size, measure_turns
from bench.placement_site import placement_on
from bench.tree_driver import Tree
from tests.nova.run import FAST
from tests.support import backends
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement

NOVA = os.environ.get("NOVA_PYTHON")
NEEDED = "ddt, fixtures, oslotest, requests-mock, testscenarios, testtools, wsgi_intercept, msgspec"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def nova() -> str:
    names = NEEDED.replace("requests-mock", "requests_mock")
    if not NOVA or subprocess.run([NOVA, "-c", f"import nova, {names}"], check=False).returncode:
        pytest.skip(
            backends.reason(
                "nova's own functional tests",
                f"set NOVA_PYTHON to a Python with nova==34.0.0 'SQLAlchemy<2.1', {NEEDED}",
            )
        )
    return str(NOVA)


@pytest.mark.parametrize("module", FAST)
def test_novas_own_tests_pass_with_the_engine_in_place(nova: str, module: str) -> None:
    ran = subprocess.run(
        [nova, "-m", "tests.nova.run", module],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert f"{module}: {FAST[module]} tests, passed" in ran.stdout


def test_what_goes_wrong_ends_for_nova_as_with_its_own_client(nova: str) -> None:
    ran = subprocess.run(
        [nova, "-m", "tests.nova.outages"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found) == 15
    assert {case: ends for case, ends in found.items() if ends[0] != ends[1]} == {}


COMMAND = "from agent.nova.command import main; main()"
START = """
from nova.cmd import compute
from nova import service
from nova.conductor import api

def serve(server, **_options):
    manager = server.manager
    assert manager.reportclient is manager.rt.reportclient is manager.virtapi.reportclient
    print(type(manager).__module__, type(manager.rt).__module__)
    raise SystemExit

# There is no conductor here.
api.API.wait_until_ready = lambda *_: None
service.utils.raise_if_old_compute = lambda: None
service.serve = serve
"""


@pytest.mark.parametrize(
    ("disabled", "file"),
    [("", "nova.conf"), ("0", ".nova/nova-compute.conf")],
    ids=["threads", "eventlet"],
)
def test_the_command_starts_nova_compute_with_the_engine(
    nova: str, disabled: str, file: str, tmp_path: Path, http_placement: HttpPlacement
) -> None:
    options = (
        "[DEFAULT]",
        "host = compute-1",
        f"state_path = {tmp_path}",
        "transport_url = fake:/",
        "compute_driver = fake.FakeDriver",
        "[placement]",
        "auth_type = none",
        f"endpoint_override = {http_placement.url}",
    )
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / "logs").mkdir()
    (tmp_path / file).write_text("\n".join(options))
    # nova-compute finds the other one by itself.
    given = ["--config-file", file] if file == "nova.conf" else []
    environment = {
        "HOME": str(tmp_path),
        "PYTHONPATH": str(CHECKOUT),
        "OS_NOVA_DISABLE_EVENTLET_PATCHING": disabled,
    }

    def output(script: str, *arguments: str) -> str:
        ran = subprocess.run(
            [nova, "-W", "ignore", "-c", script, *arguments],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr[-5000:]
        # Below nova's log.
        return ran.stdout.splitlines()[-1]

    assert output(COMMAND, "--version") == "34.0.0"
    script = tmp_path / "agent-nova-compute"
    script.write_text(START + COMMAND)
    ran = subprocess.run(
        [nova, "-W", "ignore", str(script), *given, "--log-dir", str(tmp_path / "logs")],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-5000:]
    # Where log rotation looks for it.
    assert [file.name for file in (tmp_path / "logs").iterdir()] == ["nova-compute.log"]
    engine = output(START + COMMAND, *given)
    assert engine == "agent.nova.manager agent.nova.manager"
    assert (tmp_path / "compute-node-agent" / "compute-1" / "database/store.sqlite").exists()


CASES = ("first", "restart", "steady", "inventory", "reshape")
# P, C: the requests of each of CASES, by nova's own report and by the engine's.
REQUESTS = {
    (1, 5): ((7, 11, 7, 8, 19), (5, 2, 1, 2, 11)),
    (9, 5): ((31, 43, 15, 16, 59), (14, 2, 1, 2, 19)),
}


@pytest.mark.parametrize(("providers", "consumers"), REQUESTS)
def test_the_engine_sends_no_more_requests_than_the_agent_and_one(
    nova: str, providers: int, consumers: int, tmp_path: Path
) -> None:
    size = Size(Tree(providers), consumers, peers=("nova", "engine"))
    with placement_on("sqlite", tmp_path / "placement") as placement:
        rows = list(measure_turns("sqlite", placement, size, nova, tmp_path, rounds=1))
    found = {(row.peer, row.case): row for row in rows}
    for peer, expected in zip(size.peers, REQUESTS[providers, consumers], strict=True):
        assert tuple(found[peer, case].figures.requests for case in CASES) == expected, peer
    for case in CASES:
        _, budget = budgets_of_host()[case]
        row = found["engine", case]
        assert row.figures.requests <= budget(row) + 1, case


GIVES_BACK = """
import sys
from nova import config, context
from nova.scheduler.client import report
from agent.nova.report_client import MirroredReportClient
from agent.placement.server import OptionalStorage

root, deleted, evacuated = sys.argv[1:]
config.parse_args(["nova-compute", "--config-file", "nova.conf"])
client = MirroredReportClient(report.SchedulerReportClient(), "here", OptionalStorage())
admin = context.get_admin_context()

def held():
    return set(client.get_allocations_for_resource_provider(admin, root).allocations)

client.get_provider_subtree_and_ensure_root(admin, root, name="compute-1")
assert held() == {deleted, evacuated}, held()
assert client.delete_allocation_for_instance(admin, deleted, force=True)
assert held() == {evacuated}, held()
assert client.remove_provider_tree_from_instance_allocation(admin, evacuated, root)
assert held() == set(), held()
print("done")
"""


def test_what_nova_compute_gives_back_itself_is_not_shown_to_it_as_held(
    nova: str, tmp_path: Path, http_placement: HttpPlacement
) -> None:
    other = http_placement.other
    root = other.create_provider("compute-1")
    other.set_inventory(root, {"VCPU": 8})
    consumers = [other.claim({root: {"VCPU": 1}}) for _ in range(2)]
    credentials = f"[placement]\nauth_type = none\nendpoint_override = {http_placement.url}\n"
    (tmp_path / "nova.conf").write_text(credentials)
    ran = subprocess.run(
        [nova, "-W", "ignore", "-c", GIVES_BACK, root, *consumers],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.stdout.splitlines()[-1:] == ["done"], ran.stdout + ran.stderr[-5000:]
