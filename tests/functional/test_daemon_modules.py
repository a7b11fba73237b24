"""What a daemon with the local API and its records in a file loads: nothing for other work; and
that it works without docstrings and asserts, as the unit runs it.
"""

import json
import os
import subprocess
import sys

import pytest

from agent.api.client import ApiProblem
from tests.functional.test_daemon_claims import Host
from tests.support.child import CHECKOUT
from tests.support.service_manager import until

# Output of the command line, the page of a report, explanations of requests, the other database,
# the change of an older store, the embedded Placement.
OTHERS = (
    "agent.explain",
    "agent.render.page",
    "agent.render.text",
    "alembic",
    "jinja2",
    "placement",
    "psycopg",
    "rich",
    "sqlalchemy.dialects.postgresql",
)
# In a process that begins with nothing, because the usual ones are forks of one that has it all.
SCRIPT = """
import json, sys
from agent.cli.main import run
code = run(sys.argv[1:])
print(json.dumps(sorted(sys.modules)))
sys.exit(code)
"""


def test_a_daemon_loads_nothing_for_other_work(http_placement, tmp_path):
    host = Host(tmp_path / "agent", http_placement.url)
    command = [sys.executable, "-c", SCRIPT, "--config-file", str(host.command.config_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            host.answers(host.client.readiness)
            host.claim("i1")
            host.client.metrics()
            process.terminate()
            loaded = json.loads(process.communicate()[0])
        finally:
            process.kill()
    assert process.returncode == 0
    assert [name for name in OTHERS if name in loaded] == []


@pytest.mark.long
def test_a_daemon_works_with_the_code_as_the_unit_has_it(http_placement, tmp_path):
    unit = (CHECKOUT / "systemd" / "compute-node-agent.service").read_text()
    assignments = dict(
        assignment.split("=", 1)
        for line in unit.splitlines()
        if line.startswith("Environment=PYTHON")
        for assignment in line.removeprefix("Environment=").split()
    )
    assert assignments == {
        "PYTHONOPTIMIZE": "2",
        "PYTHONPYCACHEPREFIX": "/var/cache/compute-node-agent",
    }
    bytecode = tmp_path / "bytecode"
    environment = {
        **assignments,
        "PYTHONPYCACHEPREFIX": str(bytecode),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    # Compiled before, because that takes long on a busy machine.
    modules = (
        "import agent.cli.run, agent.api.local_api, agent.conf.keystoneauth, drivers.fake.file"
    )
    subprocess.run(
        [sys.executable, "-c", modules], env={**os.environ, **environment}, cwd=CHECKOUT, check=True
    )
    host = Host(tmp_path / "agent", http_placement.url)
    with host.service.running(**environment):
        host.answers(host.client.readiness)
        assert host.claim("i1")["state"] == "held"
        until(lambda: not host.records["dirty"], lambda: host.service)
        with pytest.raises(ApiProblem) as refused:
            host.client.create_claim({"id": "no uuid"})
        assert (refused.value.status, len(refused.value.parts) > 1) == (400, True)
        host.client.metrics()
        host.client.report_page()
        host.client.reload()
        host.client.audit_report(host.client.request_audit(), 30)
        assert host.service.stop()[0] == 0
    assert "Traceback" not in host.service.log
    assert list(bytecode.rglob("agent/service/daemon.*.opt-2.pyc"))
