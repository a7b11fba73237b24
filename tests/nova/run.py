"""Runs modules of nova's own functional tests with the engine in place:
``python -m tests.nova.run [MODULE ...]``, with a Python that has nova and what its tests import.

Prints a line for each module; exits with 1 unless all of them passed.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FAST = {
    "nova.tests.functional.test_servers_provider_tree": 11,
    "nova.tests.functional.compute.test_resource_tracker": 8,
    "nova.tests.functional.libvirt.test_reshape": 3,
    "nova.tests.functional.test_cold_migrate": 4,
    "nova.tests.functional.regressions.test_bug_1886418": 1,
}
"""How many tests each module has in nova 34.0.0."""
ALL = {
    **FAST,
    "nova.tests.functional.libvirt.test_pci_in_placement": 36,
    "nova.tests.functional.libvirt.test_vgpu": 18,
}
CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
import nova.monkey_patch
nova.monkey_patch.patch()
import tests.nova.in_place
import testtools.run
testtools.run.main(["nova", sys.argv[1]], sys.stdout)
"""


def run(module: str) -> tuple[int, bool, str]:
    """Return how many tests of the module ran, whether all passed, and the output."""
    with tempfile.TemporaryDirectory(prefix="nova-") as folder:
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, module, str(CHECKOUT)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=1800,
            check=False,
        )
    counted = re.search(r"^Ran (\d+) tests?", ran.stdout, re.MULTILINE)
    return int(counted[1]) if counted else 0, ran.returncode == 0, ran.stdout


def link_configuration() -> None:
    """nova's fixtures look for its api-paste.ini beside the package."""
    import nova

    beside = Path(nova.__file__).parents[1] / "etc"
    if not beside.exists():
        beside.symlink_to(Path(sys.prefix) / "etc")


def main(modules: list[str]) -> int:
    """Run the modules, all of them if none is named. Return the exit code."""
    link_configuration()
    failed = False
    for module in modules or ALL:
        count, passed, output = run(module)
        good = passed and count == ALL.get(module, count or -1)
        failed |= not good
        print(f"{module}: {count} tests, {'passed' if good else 'FAILED'}", flush=True)
        if not good:
            print(output[-20_000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
