"""The fixture ``check_driver``, in the tests of somebody else's driver."""

import subprocess
import sys
from pathlib import Path

from tests.support.child import CHECKOUT

DRIVERS = """
from agent.model.facts import HostFacts
from tests.support.sound_driver import SoundDriver

class WrongDriver(SoundDriver):
    def facts(self, name: str) -> HostFacts:
        return self.described(name, memory_mib=2.5)

def test_a_sound_driver(check_driver):
    assert check_driver(SoundDriver).listed == 2

def test_a_wrong_driver(check_driver):
    check_driver(WrongDriver)
"""


def test_a_driver_that_breaks_a_promise_fails_its_test_with_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["agent.conformance.pytest_plugin"]\n')
    (tmp_path / "test_drivers.py").write_text(DRIVERS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "facts-types: facts() is a HostFacts whose fields have their types" in done.stdout
    assert "    node-2: memory_mib = 2.5: no whole number of at least 0\n" in done.stdout
