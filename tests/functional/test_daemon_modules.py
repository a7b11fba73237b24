"""What a daemon with the local API and its records in a file loads: nothing for other work."""

import json
import subprocess
import sys

from tests.functional.test_daemon_claims import Host

# Output of the command line, the page of a report, explanations of requests, the driver of the other
# database, the embedded Placement, and what libraries import because it is installed.
OTHERS = (
    "agent.explain",
    "agent.render.page",
    "agent.render.text",
    "alembic",
    "charset_normalizer",
    "jinja2",
    "osprofiler",
    "placement",
    "psycopg",
    "rich",
)
# In a process that begins with nothing, because the usual ones are forks of one that has it all.
SCRIPT = """
import json, sys
from agent.cli.main import run
code = run(sys.argv[1:])
print(json.dumps(sorted(sys.modules)))
import charset_normalizer, osprofiler.web
sys.exit(code)
"""


def test_a_daemon_loads_nothing_for_other_work(http_placement, tmp_path):
    """What libraries are kept from importing can be imported afterwards, and none of them warns."""
    host = Host(tmp_path / "agent", http_placement.url)
    command = [sys.executable, "-c", SCRIPT, "--config-file", str(host.command.config_file)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            host.answers(host.client.readiness)
            host.claim("i1")
            host.client.metrics()
            process.terminate()
            output, errors = process.communicate()
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert "Warning" not in errors
    loaded = json.loads(output)
    assert [name for name in OTHERS if name in loaded] == []
