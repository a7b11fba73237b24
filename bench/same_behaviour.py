"""Compare what two trees of code do: reports, trees, claims, and every request to Placement must be
equal, with providers called by their names.

``python -m bench.same_behaviour --before FOLDER --after FOLDER`` runs the agent of both checkouts
(each with the Python of its ``.venv``) beside a real Placement over every host of
``bench.compared_hosts``: dry run, first, second and complete audit; a daemon with claims, moves and
questions; reshapes between layouts with the allocations of these; a new name, a lost store, a
consumer that nobody knows, the end of the node. It prints a line for each host, then each
difference, and ends with 1 if there is any. What a clean checkout did is kept in its ``.state``, so
that it runs once.

It also compares, within each tree of code, what a dry run says with what the run does.
"""

import argparse
import hashlib
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import requests

from bench import compared_hosts
from bench.compared_hosts import Claim, Host, Step
from tests.support import unix_requests
from tests.support.http_placement import HttpPlacement
from tests.support.ini import Config, write_config

IDENTITY = "4f8f1f5e-3c54-4c3a-8f55-0b9a5c4b1d2e"
BEGINNING = 120
"""Seconds within which a daemon has to answer."""
QUESTIONS = ("resources", "claims", "migrations", "drift", "tree", "status")
# What differs from run to run.
VOLATILE = re.compile(
    r"seconds|.*_at|at|since|version|pid|attempts|generation|.*_generation|resident.*|uptime|id_"
)
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d| UTC)?")
DURATION = re.compile(r"\b\d+(\.\d+)? (ms|s|seconds?|minutes?)\b")
Behaviour = dict[str, Any]


class Scene:
    """One host with one tree of code. What happened is in ``found``, in the order of the steps."""

    def __init__(self, checkout: Path, host: Host, placement: HttpPlacement, folder: Path) -> None:
        self.host, self.placement, self.folder = host, placement, folder
        self.store = folder / "store"
        self.store.mkdir(parents=True)
        (self.store / "compute_id").write_text(IDENTITY + "\n")
        self.found: Behaviour = {}
        self._checkout, self._names = checkout, {IDENTITY: "<compute_id>"}
        self._extra: dict[str, dict[str, Any]] = {}
        self._socket = folder / "api.sock"
        placement.reset()

    def play(self) -> Behaviour:
        """Do all steps; return what was found, without what is volatile."""
        for number, step in enumerate(self.host.steps):
            title = f"{number:02} {step.title}"
            self._configure(step.options)
            self.placement.clear()
            getattr(self, f"_{step.kind}")(title, step)
            self._learn_names()
        return {title: self._plain(one) for title, one in self.found.items()}

    # --- kinds of steps ---------------------------------------------------------------------------

    def _run(self, title: str, step: Step) -> None:
        code, document = self._agent(*step.arguments)
        self.found[title] = {
            "exit": code,
            "document": document,
            "requests": sorted(self._traffic()),
            "placement": self._state(),
        }

    def _serve(self, title: str, step: Step) -> None:
        self._socket.unlink(missing_ok=True)
        log = (self.folder / "daemon.log").open("ab")
        daemon = subprocess.Popen(
            self._command(), stdout=log, stderr=log, cwd=self._checkout, env=self._environment
        )
        try:
            self.found[title] = self._questions(step.claims)
        finally:
            daemon.terminate()
            daemon.wait(60)
        self.found[title] |= {
            "exit": daemon.returncode,
            "writes": sorted(line for line in self._traffic() if not line.startswith("GET")),
            "placement": self._state(),
        }

    def _touch(self, _title: str, step: Step) -> None:
        (self.store / step.arguments[0]).touch()

    def _lose(self, _title: str, _step: Step) -> None:
        for path in sorted(self.store.rglob("*"), reverse=True):
            if path.name not in ("compute_id", "split"):
                path.rmdir() if path.is_dir() else path.unlink()

    def _occupy(self, title: str, _step: Step) -> None:
        stranger = compared_hosts.consumer("stranger")
        self.found[title] = {"status": self._allocate(stranger, {"VCPU": 1, "MEMORY_MB": 64})}

    # --- the daemon -------------------------------------------------------------------------------

    def _questions(self, claims: Sequence[Claim]) -> Behaviour:
        session = unix_requests.session(self._socket)
        found: Behaviour = {"first": self._audit(session, BEGINNING)}
        if "no audit" in found["first"]:
            return found
        nodes = session.get("http://localhost/v1/nodes").json()["nodes"]
        node = sorted(nodes, key=lambda one: str(one["name"]))[0]["uuid"]
        for claim in claims:
            held = {} if claim.held is None else claim.held
            found[f"allocate {claim.name}"] = self._allocate(claim.consumer, held) if held else None
            answer = session.post("http://localhost/v1/claims", json=claim.body(node), timeout=60)
            found[f"claim {claim.name}"] = (answer.status_code, answer.json())
        for name, method, path, body in compared_hosts.moves(node, claims):
            url, version = f"http://localhost{path}", {}
            if method == "PATCH":
                version = {"If-Match": session.get(url).headers.get("ETag", "")}
            answer = session.request(method, url, json=body, headers=version, timeout=60)
            found[f"move {name}"] = (answer.status_code, answer.json() if answer.content else None)
        found["published"] = self._audit(session, 60)
        for question in QUESTIONS:
            found[question] = self._agent(question)
        found["explain"] = self._agent("explain", "--vcpus", "1", "--ram", "64", "--suggest")
        found["explain pinned"] = self._agent(
            "explain", "--vcpus", "2", "--ram", "64", "--extra-spec", "hw:cpu_policy=dedicated"
        )
        return found

    @staticmethod
    def _audit(session: requests.Session, patience: float) -> Any:
        end, audits = time.monotonic() + patience, "http://localhost/v1/audits"
        said: Any = "no answer"
        while time.monotonic() < end:
            with suppress(requests.RequestException):
                answer = session.post(audits, json={}, headers={"Prefer": "wait=60"}, timeout=90)
                said = answer.json()
                if answer.status_code == requests.codes.ok:
                    return said.get("report", said)
            time.sleep(0.1)
        return {"no audit": said}

    # --- the agent --------------------------------------------------------------------------------

    def _configure(self, options: Config) -> None:
        config: dict[str, dict[str, Any]] = {
            "DEFAULT": {"host": "host-a", "state_path": self.folder / "state"},
            "store": {"path": self.store},
            "api": {"socket": self._socket},
            "placement": {
                "auth_type": "none",
                "endpoint_override": self.placement.url,
                "max_in_flight": 1,
            },
        }
        for group, values in [*self.host.options.items(), *options.items()]:
            config[group] = {**config.get(group, {}), **values}
        write_config(self.folder / "agent.conf", config)

    @property
    def _environment(self) -> Mapping[str, str]:
        driver = {"PYTHONPATH": str(self.folder.parent / "driver")}
        return {**os.environ, **driver, "PYTHONHASHSEED": "0", "COLUMNS": "200"}

    def _command(self, *arguments: str) -> list[str]:
        python = self._checkout / ".venv/bin/python"
        config = ("--config-file", str(self.folder / "agent.conf"))
        return [str(python), "-W", "ignore", "-m", "agent", *config, *arguments]

    def _agent(self, *arguments: str) -> tuple[int, Any]:
        # Options of a command are behind its name.
        command = self._command()[:-2] if arguments[0][0] != "-" else self._command()
        config = [] if arguments[0][0] == "-" else self._command()[-2:]
        done = subprocess.run(
            [*command, *arguments, *config, "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._checkout,
            env=self._environment,
            timeout=300,
        )
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            return done.returncode, (done.stdout + done.stderr)[-2000:]

    # --- Placement --------------------------------------------------------------------------------

    def _allocate(self, consumer: str, held: Mapping[str, int]) -> int:
        """Let a scheduler allocate of the first root; the status."""
        other = self.placement.other
        providers = self.placement.dump()["providers"]
        roots = {one["name"]: uuid for uuid, one in providers.items() if one["parent"] is None}
        root = roots[min(roots)]
        offered = providers[root]["inventories"]
        taken = {name: amount for name, amount in held.items() if name in offered}
        taken = taken or dict.fromkeys(sorted(offered)[:1], 1)
        body = {
            "allocations": {root: {"resources": taken}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": None,
        }
        return other.call("PUT", f"/allocations/{consumer}", body, expect=range(600)).status_code

    def _traffic(self) -> Iterator[str]:
        for one in self.placement.requests:
            body = (
                ""
                if one.body is None
                else json.dumps(self._without_volatile(one.body), sort_keys=True)
            )
            yield f"{one.method} {one.target} {body} -> {one.status}"

    def _state(self) -> Any:
        return self._without_volatile(self.placement.dump())

    def _learn_names(self) -> None:
        providers = self.placement.dump()["providers"]
        self._names |= {uuid: f"<{one['name']}>" for uuid, one in providers.items()}

    # --- what is equal ----------------------------------------------------------------------------

    def _plain(self, found: Any) -> Any:
        """Call providers by names, and leave out what no two runs have in common."""
        text = json.dumps(self._without_volatile(found))
        for path, word in (self.folder, "FOLDER"), (self.folder.parent, "PARENT"):
            text = text.replace(str(path), word)
        text = text.replace(str(self._checkout), "CHECKOUT")
        text = text.replace(f":{self.placement.port}", ":PORT")
        text = DURATION.sub("DURATION", TIME.sub("TIME", text))
        known = compared_hosts.KNOWN
        text = UUID.sub(
            lambda uuid: self._names.get(uuid[0], uuid[0] if uuid[0] in known else "UUID"), text
        )
        return _sorted(json.loads(text))

    def _without_volatile(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: self._without_volatile(one)
                for name, one in value.items()
                if not VOLATILE.fullmatch(name)
            }
        if isinstance(value, list | tuple):
            return [self._without_volatile(one) for one in value]
        return value


def _sorted(value: Any) -> Any:
    """Have named things in the order of their names: several nodes are audited at once."""
    if isinstance(value, dict):
        return {name: _sorted(one) for name, one in sorted(value.items())}
    if isinstance(value, list):
        found = [_sorted(one) for one in value]
        named = found and all(isinstance(one, dict) and "name" in one for one in found)
        if named or (found and all(isinstance(one, str) for one in found)):
            return sorted(found, key=json.dumps)
        return found
    return value


def unlike_dry_runs(behaviour: Behaviour) -> Iterator[str]:
    """Yield the runs that did something else than the dry run right before them said."""
    titles = list(behaviour)
    for dry, real in pairwise(titles):
        if dry.endswith("dry run") and real[3:] == dry[3:].removesuffix(" dry run"):
            said, did = (_operations(behaviour[one]["document"]) for one in (dry, real))
            if said != did:
                yield f"{real}: not what its dry run said: {_first(said, did)}"


def _operations(document: Any) -> list[Any]:
    if not isinstance(document, dict):
        return [document]
    return [
        (node["name"], one["op"], (one["provider"] or {}).get("name"), one["reason"])
        for node in document.get("nodes", [])
        for one in node["operations"]
    ]


def _first(said: Sequence[Any], did: Sequence[Any]) -> str:
    pairs = zip([*said, *[None] * len(did)], [*did, *[None] * len(said)], strict=False)
    return next(f"{one} | {other}" for one, other in pairs if one != other)


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each place where two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            missing = "(nothing)"
            yield from differences(
                before.get(name, missing), after.get(name, missing), f"{path}/{name}"
            )
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}/{number}")
    elif before != after:
        yield f"{path}\n      before {json.dumps(before)[:600]}\n      after  {json.dumps(after)[:600]}"


class Side:
    """One tree of code. What it did is kept in ``.state`` if nothing in it is uncommitted."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout.resolve()
        said = [self._git("status", "--porcelain"), self._git("rev-parse", "HEAD")]
        parts = (Path(one).read_bytes() for one in (__file__, compared_hosts.__file__))
        recipe = hashlib.sha256(b"".join(parts)).hexdigest()[:12]
        kept = self.checkout / ".state/same_behaviour" / f"{said[1][:12]}-{recipe}"
        self._kept = None if said[0] else kept

    def _git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.checkout), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def behaviour(self, host: Host, folder: Path, placements: "queue.Queue[HttpPlacement]") -> Any:
        """What it does on one host."""
        kept = self._kept / f"{host.name.replace(' ', '-')}.json" if self._kept else None
        if kept is not None and kept.exists():
            return json.loads(kept.read_text())
        placement = placements.get()
        try:
            found = Scene(self.checkout, host, placement, folder).play()
        finally:
            placements.put(placement)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found))
        return found


def compare(sides: Sequence[Side], hosts: Sequence[Host], folder: Path, jobs: int) -> int:
    """Compare them on all hosts; return the number of differences, which it prints."""
    placements: queue.Queue[HttpPlacement] = queue.Queue()
    started = []
    for number in range(jobs):
        (folder / f"placement-{number}").mkdir()
        started.append(HttpPlacement(folder / f"placement-{number}"))
        started[-1].start()
        placements.put(started[-1])
    count = 0
    try:
        with ThreadPoolExecutor(jobs) as pool:
            futures = [
                [
                    pool.submit(side.behaviour, host, folder / f"{name}-{number}", placements)
                    for name, side in zip(("b", "a"), sides, strict=True)
                ]
                for number, host in enumerate(hosts)
            ]
            for host, pair in zip(hosts, futures, strict=True):
                before, after = (one.result() for one in pair)
                lines = [*differences(before, after), *unlike_dry_runs(after)]
                count += len(lines)
                print(f"{host.name}: {len(lines) or 'no'} differences", flush=True)
                for line in lines[:40]:
                    print(f"   {line}", flush=True)
    finally:
        for placement in started:
            placement.stop()
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description="compare what two trees of code do")
    parser.add_argument("--before", type=Path, required=True, help="a checkout with a .venv")
    parser.add_argument("--after", type=Path, default=Path(), help="another; default: this folder")
    parser.add_argument("--only", default="", help="only hosts whose name has this in it")
    parser.add_argument("--jobs", type=int, default=2, help="hosts at once")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compared_hosts.install_driver(folder / "driver")
        hosts = list(compared_hosts.hosts(folder, given.only))
        begun = time.monotonic()
        count = compare((Side(given.before), Side(given.after)), hosts, folder, given.jobs)
        print(f"{len(hosts)} hosts, {count} differences, {time.monotonic() - begun:.0f} s")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
