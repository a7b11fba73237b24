"""Runs modules of nova's own functional tests with the engine in place:
``python -m tests.nova.run [MODULE ...]``, with a Python that has nova and what its tests import.

Prints a line for each module; exits with 1 unless all of them passed.
"""

import ast
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FUNCTIONAL = "nova.tests.functional"
FAST = {
    f"{FUNCTIONAL}.test_servers_provider_tree": 11,
    f"{FUNCTIONAL}.compute.test_resource_tracker": 8,
    f"{FUNCTIONAL}.libvirt.test_reshape": 3,
    f"{FUNCTIONAL}.regressions.test_bug_1886418": 1,
    # Ours, on the services of nova's functional tests.
    "tests.nova.classes_of_others": 2,
    "tests.nova.renamed_host": 2,
}
"""How many tests each module has in nova 34.0.0."""
SERVERS, USAGES = f"{FUNCTIONAL}.test_servers", "ProviderUsageBaseTestCase"
"""Of this module the classes that check allocations and usages, by their base."""
REGRESSIONS, ABOUT = f"{FUNCTIONAL}.regressions", re.compile("placement|allocation|provider", re.I)
"""Of this package the modules that name one of these."""
ALL = {
    **FAST,
    f"{FUNCTIONAL}.test_cold_migrate": 4,
    f"{FUNCTIONAL}.libvirt.test_shared_resource_provider": 3,
    f"{FUNCTIONAL}.libvirt.test_pci_in_placement": 36,
    f"{FUNCTIONAL}.libvirt.test_vgpu": 18,
    f"{FUNCTIONAL}.libvirt.test_pci_sriov_servers": 116,
    f"{FUNCTIONAL}.libvirt.test_numa_servers": 56,
    f"{FUNCTIONAL}.libvirt.test_evacuate": 8,
    f"{FUNCTIONAL}.libvirt.test_live_migration": 6,
    f"{FUNCTIONAL}.libvirt.test_vpmem": 3,
    f"{FUNCTIONAL}.libvirt.test_power_manage": 18,
    f"{FUNCTIONAL}.compute.test_live_migration": 3,
    f"{FUNCTIONAL}.test_report_client": 18,
    # It puts inventories of its own on compute nodes.
    f"{FUNCTIONAL}.test_nova_manage.TestNovaManageLimits": 9,
    SERVERS: 279,
    REGRESSIONS: 86,
}
CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import nova.monkey_patch
nova.monkey_patch.patch()
import tests.nova.in_place
import testtools.run
testtools.run.main(["nova", *sys.argv[2:]], sys.stdout)
"""


def parts(module: str) -> list[str]:
    """Return the names of what runs of a module or package."""
    import nova

    path = Path(nova.__file__).parents[1].joinpath(*module.split("."))
    if module == SERVERS:
        return [f"{module}.{name}" for name in derived(path.with_suffix(".py"), USAGES)]
    if module == REGRESSIONS:
        files = sorted(path.glob("test_*.py"))
        return [f"{module}.{file.stem}" for file in files if ABOUT.search(file.read_text())]
    return [module]


def derived(file: Path, base: str) -> list[str]:
    """Return the classes of a file that have this base, also by another class of the file."""
    known = {base}
    classes = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]
    for node in classes:
        if any(ast.unparse(one).rpartition(".")[2] in known for one in node.bases):
            known.add(node.name)
    return [node.name for node in classes if node.name in known]


def run(module: str) -> tuple[int, bool, str]:
    """Return how many tests of the module ran, whether all passed, and the output."""
    with tempfile.TemporaryDirectory(prefix="nova-") as folder:
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, str(CHECKOUT), *parts(module)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=7200,
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
