"""What a newcomer sees first: one line a provider, next steps, and what was meant by a typo; and by
which name the requests of the agent are found in a log.
"""

import json
import re
import shlex
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

from agent.version import agent_version
from tests.functional.cli.setups import numa_host, tree
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere


def operations(text: str) -> list[str]:
    """The lines of the operations."""
    return text.partition("operations\n")[2].partition("\n\n")[0].splitlines()


def test_a_first_audit_tells_each_provider_in_one_line_and_the_document_is_whole(
    http_placement: HttpPlacement, tmp_path: Path
) -> None:
    agent = numa_host(http_placement, tmp_path / "agent")
    planned = agent.run("--once", "--dry-run", "--format", "json").json["nodes"][0]["operations"]
    result = agent.run("--once")
    lines = operations(result.stdout)
    providers = tree(http_placement)
    created = [line for line in lines if " created" in line]
    assert len(created) == len(providers)
    # Nothing else is told of them: what remains are names that Placement did not know.
    assert {line.split()[-1] for line in lines} <= {"not", "yet"}
    assert all(
        re.match(r"\+ CUSTOM_\w+ (trait|resource class) ", line) for line in lines[len(created) :]
    )
    (cell,) = (line for line in created if line.startswith("+ node-a_NUMA0 "))
    assert cell.startswith(
        "+ node-a_NUMA0 created below node-a, with CUSTOM_PMEM_NAMESPACE_4GB 1, PCPU 4, "
        "HW_NUMA_ROOT — "
    )
    (root,) = (line for line in created if line.startswith("+ node-a created, with "))
    assert "MEMORY_MB 65536 (reserved 512), VCPU 8 (ratio 4.0), COMPUTE_NODE, " in root
    kinds = {operation["op"] for operation in planned}
    assert kinds >= {"create-provider", "set-inventory", "set-traits", "set-aggregates"}


def test_a_later_change_is_told_by_itself(agent: AgentHere, http_placement: HttpPlacement) -> None:
    assert agent.run("--once").code == 0
    (line,) = operations(agent.run("--once", "--cpu_allocation_ratio", "8").stdout)
    assert line.startswith("~ node-a inventory: VCPU ratio 4.0 → 8.0")


# What an audit over HTTP with the store in a file needs nothing of: terminals, the databases of
# other stores and of the embedded Placement, the local API, figures of the host.
HEAVY = (
    "agent.api.local_api",
    "alembic",
    "falcon",
    "placement",
    "psutil",
    "rich.console",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.orm",
    "waitress",
)


def test_an_audit_loads_nothing_that_only_terminals_and_other_work_need(agent: AgentHere) -> None:
    assert agent.run("--once").code == 0
    script = f"""
import sys
from agent.cli.main import run
code = run(sys.argv[1:])
sys.exit(code or str([name for name in {HEAVY} if name in sys.modules] or ""))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, "--config-file", str(agent.config_file), "--once"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 node (1 in-sync)" in done.stdout
    assert done.stderr.strip() == ""


def test_what_was_meant_comes_first(agent: AgentHere) -> None:
    result = agent.run("staus")
    assert result.code == 64
    assert result.stderr.startswith("✗ did you mean status? argument COMMAND: there is no 'staus'")
    assert "candidates" not in result.stderr


def test_make_audit_ends_with_two_commands_that_run(tmp_path: Path) -> None:
    venv, state = Path(sys.prefix), tmp_path / "state"
    settings = [f"VENV={venv}", f"STATE={state}", "-o", f"{venv}/embedded.stamp"]
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(CHECKOUT),
        "NO_PROXY": "*",
    }

    def run(*command: str, code: int = 0) -> str:
        ran = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode in (0, code), ran
        return ran.stdout

    text = run("make", "--no-print-directory", *settings, "audit")
    steps = re.findall(r"^next: .*:?\n  (.*)$", text, re.MULTILINE)
    assert len(steps) == 2
    page, why = (run(*shlex.split(step), code=2) for step in steps)
    assert "in-sync" in page
    assert (state / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert re.search(r"fits [01] of 1 node", why)


def test_requests_name_the_program_and_its_version(tmp_path: Path) -> None:
    named: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            named.append(self.headers["User-Agent"])
            body = json.dumps({"versions": []}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        agent = AgentHere(tmp_path / "agent")
        placement = {
            "auth_type": "admin_token",
            "endpoint": f"http://127.0.0.1:{server.server_port}",
            "token": "secret",
        }
        agent.configure(
            {"DEFAULT": {"compute_driver": "fake.small", "host": "a"}, "placement": placement}
        )
        agent.run("--once")
    finally:
        server.shutdown()
        server.server_close()
    assert set(named) == {f"compute-node-agent/{agent_version()}"}
