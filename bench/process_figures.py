"""What the agent's processes and its inner steps take: the daemon's memory and threads, its claims
with and without Placement, commands, and a tree of 513 providers.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import median
from uuid import uuid4

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from agent.model.instance import Flavor
from agent.model.mirror import Journal, Ownership, PlacementView, ServerCapabilities
from agent.model.names import ProviderUuid
from agent.model.provider_tree import PresentTree, ProviderTree, TargetTree
from agent.placement.merge import Target
from agent.placement.plan import make_plan
from bench.claims import THREADS
from bench.figures import status
from bench.placement_site import BenchPlacement
from bench.tree_driver import CELLS, CUSTOM_TRAIT, NAME, ROOT, Tree, TreeDriver
from tests.support.child import CHECKOUT
from tests.support.ini import Config, write_config
from tests.support.placement import PROJECT, USER

DAEMON_PROVIDERS, SMALL_PROVIDERS, LARGE_PROVIDERS = 73, 9, 513
SMALL = Flavor("bench", "bench", vcpus=1, memory_mb=64, root_gb=1)
START = 600.0
"""Seconds in which a daemon has to be well."""
CLAIMS, STANDING = 100, 500
RUNS = 3


@dataclass(frozen=True)
class DaemonFigures:
    """The daemon with its API, on a host with 73 providers. Memory in MiB."""

    resident: float
    """After the first pass."""
    threads: int
    resident_after_claims: float
    """After 500 claims, all of which stand."""
    claims_a_second: float
    """From one client of the socket, which connects for each. That they are released afterwards is
    not measured.
    """
    claim_milliseconds: float
    """The median."""
    claim_milliseconds_of_eight: float
    """Of a hundred claims of eight clients at once, 99 take no longer."""
    claim_milliseconds_away: float
    """The median while Placement is away."""


@dataclass(frozen=True)
class CommandFigures:
    """The fastest of some runs of a command, in seconds."""

    seconds: float
    cpu: float
    """Of the processor."""


@dataclass(frozen=True)
class ProcessFigures:
    """What processes and steps take; those of the tree are seconds of the processor."""

    daemon: DaemonFigures
    commands: Mapping[str, CommandFigures]
    copy: float
    """Of a tree of 513 providers."""
    plan: float
    """Of a tree of 513 providers in which nothing changed."""


def process_figures(placement: BenchPlacement, folder: Path) -> ProcessFigures:
    """Measure everything."""
    placement.reset()
    daemon = _daemon_figures(placement, folder / "daemon")
    placement.reset()
    commands = dict(_commands(placement, folder / "commands"))
    copy, plan = _tree_seconds()
    return ProcessFigures(daemon, commands, copy, plan)


# --- the daemon -----------------------------------------------------------------------------------


def host_file(folder: Path, providers: int) -> Config:
    """A host of so many providers: a root, up to eight cells below it, the others devices below the
    cells.
    """
    below = [
        {"name": f"$NODE_CELL{cell}", "inventories": {"PCPU": {"total": 16}}}
        for cell in range(min(CELLS, providers - 1))
    ]
    card = {"inventories": {"SRIOV_NET_VF": {"total": 8}}, "traits": ["CUSTOM_PHYSNET_A"]}
    devices = range(providers - 1 - len(below))
    below += [
        {"name": f"$NODE_DEVICE{number}", "parent": f"$NODE_CELL{number % CELLS}", **card}
        for number in devices
    ]
    root = {
        "name": "$NODE",
        "inventories": {
            "VCPU": {"total": 256},
            "MEMORY_MB": {"total": 1048576},
            "DISK_GB": {"total": 10000},
        },
    }
    file = folder / "host.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    # JSON is YAML too
    file.write_text(json.dumps({"providers": [root, *below]}))
    return {
        "DEFAULT": {"host": "bench", "compute_driver": "fake.file"},
        "fake": {"host_file": file},
    }


def _options(placement: BenchPlacement, folder: Path, providers: int) -> Config:
    return {
        **host_file(folder, providers),
        "store": {"path": folder / "store"},
        "api": {"socket": folder / "agent.sock"},
        "placement": {**placement.credentials(), "max_in_flight": placement.in_flight},
    }


@contextmanager
def _daemon(config: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with (config.parent / "daemon.log").open("wb") as log:
        command = [sys.executable, "-m", "agent", "--config-file", str(config)]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=CHECKOUT)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(START)


def _wait_until_well(client: ApiClient, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START
    while True:
        try:
            client.readiness()
            return
        except (ApiProblem, ApiUnreachable) as error:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the daemon is not well: {error}") from error
        time.sleep(0.1)


def _daemon_figures(placement: BenchPlacement, folder: Path) -> DaemonFigures:
    config = write_config(folder / "agent.conf", _options(placement, folder, DAEMON_PROVIDERS))
    with _daemon(config) as process:
        client = ApiClient(folder / "agent.sock")
        _wait_until_well(client, process)
        file = Path(f"/proc/{process.pid}/status")
        first = status(file)
        (node,) = client.nodes()
        uuid = str(node["uuid"])
        there = [_claim_seconds(client, uuid, claim) for claim in _new_claims(STANDING)]
        after = status(file)
        with placement.outage():
            away = [_claim_seconds(client, uuid, claim) for claim in _new_claims(CLAIMS)]
        with ThreadPoolExecutor(THREADS) as pool:
            claims = _new_claims(STANDING)
            beside = sorted(pool.map(partial(_claim_seconds, client, uuid), claims))
    return DaemonFigures(
        first["VmRSS"] / 1024,
        first["Threads"],
        after["VmRSS"] / 1024,
        len(there) / sum(there),
        1000 * median(there),
        1000 * beside[len(beside) * 99 // 100],
        1000 * median(away),
    )


def _new_claims(count: int) -> list[str]:
    return [str(uuid4()) for _ in range(count)]


def _claim_seconds(client: ApiClient, node: str, claim: str) -> float:
    """Return how long a claim takes. What it claims stays claimed."""
    wanted = {
        "id": claim,
        "node": node,
        "instance": {"uuid": str(uuid4()), "project_id": PROJECT, "user_id": USER},
        "flavor": asdict(SMALL),
    }
    begun = time.perf_counter()
    client.create_claim(wanted)
    return time.perf_counter() - begun


# --- commands -------------------------------------------------------------------------------------


def _commands(placement: BenchPlacement, folder: Path) -> Iterator[tuple[str, CommandFigures]]:
    """Yield commands with the seconds of their fastest run, after one that is not measured."""
    yield "--version", _fastest(["--version"])
    config = write_config(folder / "agent.conf", _options(placement, folder, SMALL_PROVIDERS))
    yield "--once, over HTTP", _fastest(["--config-file", str(config), "--once"])
    embedded = ["--placement-backend", "embedded", "--compute_driver", "fake"]
    store = ["--config-file", "/dev/null", "--store-path", str(folder / "embedded")]
    yield "--once, embedded", _fastest([*store, *embedded, "--once"])


def _fastest(arguments: Sequence[str]) -> CommandFigures:
    def run() -> CommandFigures:
        begun, cpu = time.perf_counter(), _cpu_of_children()
        command = [sys.executable, "-m", "agent", *arguments]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"agent {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return CommandFigures(time.perf_counter() - begun, _cpu_of_children() - cpu)

    run()
    return min((run() for _ in range(RUNS)), key=attrgetter("seconds"))


def _cpu_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


# --- a tree ---------------------------------------------------------------------------------------


def _tree_seconds() -> tuple[float, float]:
    """Return the seconds of a copy of a large tree, and of a plan that has nothing to do."""
    present, desired = _large_tree(), _large_tree()
    journal = Journal({provider.uuid: Ownership() for provider in desired.providers()}, True)
    view = PlacementView(
        PresentTree(present.freeze()), {provider.uuid: 1.0 for provider in present.providers()}
    )
    target = Target(TargetTree(desired.freeze()), journal, (), ())
    known = ServerCapabilities("http://placement", "1.39", traits=frozenset({CUSTOM_TRAIT}))
    root = ProviderUuid(ROOT.format(1))
    assert make_plan(view, target, known, root).operations == ()
    return _best(present.copy), _best(lambda: make_plan(view, target, known, root))


def _large_tree() -> ProviderTree:
    driver = TreeDriver()
    driver.tree = Tree(LARGE_PROVIDERS)
    tree = ProviderTree()
    tree.new_root(NAME, ProviderUuid(ROOT.format(1)), 1)
    driver.update_provider_tree(tree, NAME)
    return tree


def _best(action: Callable[[], object]) -> float:
    def once() -> float:
        begun = time.process_time()
        action()
        return time.process_time() - begun

    return min(once() for _ in range(RUNS))
