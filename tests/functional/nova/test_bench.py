"""The quick run of the bench: beside nova on a real Placement, the agent sends no request more than
the committed baseline has, needs no larger share of nova's time of the processor, and keeps every
budget that is a count.

``NOVA_PYTHON`` names a Python that has nova 34; without it this is left out.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.nova_python import VARIABLE, has_nova
from tests.support import backends
from tests.support.child import CHECKOUT

pytestmark = pytest.mark.long


def test_nothing_has_grown_over_the_baseline(tmp_path: Path) -> None:
    python = os.environ.get(VARIABLE)
    if python is None or not has_nova(python):
        pytest.skip(backends.reason("the bench", "set NOVA_PYTHON to a Python with nova==34.0.0"))
    ran = subprocess.run(
        [sys.executable, "-m", "bench.run", "--quick", "--output", str(tmp_path)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    cases = {(row["peer"], row["case"]) for row in document["matrix"]}
    assert {("nova", "steady"), ("agent", "steady"), ("agent", "outage")} <= cases
