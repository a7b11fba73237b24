"""The agent's version, which every report names, where the package's metadata cannot be read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.child import CHECKOUT

START = """
import importlib.metadata as metadata, sys
from agent.version import DISTRIBUTION

class Spoiled(metadata.Distribution):
    locate_file = None
    def read_text(self, name):
        {spoil}

found = metadata.Distribution.from_name
metadata.Distribution.from_name = classmethod(lambda cls, name: Spoiled() if name == DISTRIBUTION else found(name))
from agent.__main__ import main
sys.exit(main())
"""
SPOILS = {
    "no metadata": "raise metadata.PackageNotFoundError('compute-node-agent')",
    "metadata without a version": "return ''",
    "metadata that are no text": "return bytes([255]).decode()",
    "metadata that may not be read": "raise PermissionError(13, 'Permission denied')",
}


@pytest.mark.long
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=list(SPOILS))
def test_a_version_that_cannot_be_found_hides_no_other_error(tmp_path: Path, spoil: str) -> None:
    # In a process of its own, because Python remembers what it found.
    command = [sys.executable, "-c", START.format(spoil=spoil)]

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"PYTHONPATH": str(CHECKOUT)},
            check=False,
        )

    done = run("--config-file", str(tmp_path / "agent.conf"), "--once", "--format", "json")
    assert done.returncode == 1, done
    report = json.loads(done.stdout)
    assert report["agent"]["version"] == "unknown"
    (problem,) = report["errors"]
    assert problem["message"] == f"--config-file {tmp_path}/agent.conf: No such file or directory"
    assert run("--version").stdout == "agent unknown\n"
