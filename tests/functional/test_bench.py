"""The quick run of the bench, without nova: on a real Placement the agent sends no request more and
executes no more lines of Python than the committed baseline has, and keeps every budget that is a
count.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.child import CHECKOUT

pytestmark = pytest.mark.long


def test_nothing_has_grown_over_the_baseline(tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench.run",
            "--quick",
            "--without-nova",
            "--output",
            str(tmp_path),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    assert {"steady", "outage"} <= {row["case"] for row in document["matrix"]}
