"""Compare what two checkouts do: reports, trees and every request to Placement must be equal.

``python -m bench.same_behaviour OTHER_PYTHON`` runs ``agent --once`` of this checkout and of the
one whose virtual environment ``OTHER_PYTHON`` belongs to, over each fake driver, each host file in
``etc/hosts``, 100 bare-metal nodes and, with ``SHARED`` set, each recording of a real machine:
a dry run, a first audit, a second audit and an audit that reads everything again, each with an
embedded Placement. It prints a line for each host and ends with 1 if anything differs.

Made for changes that move and rename code without a change of behaviour.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.child import CHECKOUT
from tests.support.recordings import RECORDINGS, sysfs_root

IDENTITY = "4f8f1f5e-3c54-4c3a-8f55-0b9a5c4b1d2e"
FAKES = (
    "fake",
    "fake.small",
    "fake.medium",
    "fake.medium_nested",
    "fake.numa",
    "fake.pci",
    "fake.multi_node",
)
RUNS: Mapping[str, tuple[str, ...]] = {
    "dry run": ("--once", "--dry-run"),
    "first": ("--once",),
    "second": ("--once",),
    "everything read again": ("--once", "--reread"),
    "tree": ("tree", "--offline"),
}
REQUEST = re.compile(r"placement ((?:GET|PUT|POST|DELETE) \S+ -> \d+)")
# What differs from run to run.
VOLATILE = ("seconds", "audited_at", "read_at", "version")


def hosts(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each host's name and the options with which the agent audits it."""
    for fake in FAKES:
        yield fake, ("--compute_driver", fake)
    yield "100 nodes", ("--compute_driver", "fake.baremetal", "--fake-baremetal_nodes", "100")
    for path in sorted((CHECKOUT / "etc/hosts").glob("*.yaml")):
        yield path.name, ("--compute_driver", "fake.file", "--fake-host_file", str(path))
    for name in RECORDINGS:
        root = sysfs_root(name, folder / "recordings" / name)
        yield name, ("--compute_driver", "host", "--host-sysfs_root", str(root))


def behaviour(python: Path, options: tuple[str, ...], store: Path) -> dict[str, Any]:
    """Run every audit of one host with one checkout.

    :return: for each run the exit code, the JSON document without what is volatile, and the
        requests in their order.
    """
    store.mkdir(parents=True)
    (store / "compute_id").write_text(IDENTITY + "\n")
    common = ["--config-file", "/dev/null", "--host", "host-a", "--store-path", str(store)]
    found: dict[str, Any] = {}
    for title, arguments in RUNS.items():
        command = [str(python), "-m", "agent", *common, "--placement-backend", "embedded"]
        command += [*options, *arguments, "--format", "json", "--debug"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=python.parents[2]
        )
        document = json.loads(done.stdout) if done.stdout.strip() else done.stderr[-2000:]
        requests = REQUEST.findall(done.stderr)
        found[title] = (done.returncode, without_volatile(document, store), sorted(requests))
    return found


def without_volatile(value: Any, store: Path) -> Any:
    """Return a document without times and the store's path, its nodes in the order of uuids."""
    if isinstance(value, dict):
        if isinstance(nodes := value.get("nodes"), list):
            # Several nodes are first audited at once, in any order.
            value = {**value, "nodes": sorted(nodes, key=lambda node: str(node["uuid"]))}
        return {k: without_volatile(v, store) for k, v in value.items() if k not in VOLATILE}
    if isinstance(value, list):
        return [without_volatile(element, store) for element in value]
    return value.replace(str(store), "STORE") if isinstance(value, str) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the Python of the other checkout's .venv")
    other = parser.parse_args().other
    differing = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for host, options in hosts(folder):
            mine = behaviour(Path(sys.executable), options, folder / host / "mine")
            theirs = behaviour(other, options, folder / host / "theirs")
            parts = [title for title in RUNS if mine[title] != theirs[title]]
            differing += bool(parts)
            counts = ", ".join(f"{len(mine[title][2])}" for title in RUNS)
            print(f"{host}: {'differs in ' + ', '.join(parts) if parts else 'same'} ({counts})")
            for title in parts:
                print("  mine  ", json.dumps(mine[title])[:3000])
                print("  theirs", json.dumps(theirs[title])[:3000])
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
