"""How many claims a second a daemon answers over its socket, each of them durable, and how long one
takes, from one client and from many that claim side by side.

``python -m bench.claims_over_socket`` prints a table; ``--checkout DIR`` runs the daemon of another
checkout beside this one, in turns. See README.md beside this file.
"""

import argparse
import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.claims import synced
from tests.functional.test_daemon_claims import ROOT, Host
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement
from tests.support.postgresql import PostgreSQL
from tests.support.service_manager import until
from tests.support.site import flavor_body, instance_body
from tests.support.tracking import F1, uuid_of

CLIENTS = (1, 8, 32)
WARM, CLAIMS, RUNS, STANDING = 200, 1000, 3, 3200
# More than all guests of a run need.
HOST = f"uuid: {ROOT}\ncpu: {{online: 0-63}}\nmemory_mib: 100000000\ndisk_gib: 10000000\n"
TICKS = os.sysconf("SC_CLK_TCK")
CREATED, BUSY = b"HTTP/1.1 201 Created", b"HTTP/1.1 503 Service Unavailable"


@dataclass(frozen=True)
class Rate:
    """``a_second``: how many claims; ``refusals``: how often too many waited; ``cpu``: the daemon's
    milliseconds for each; ``waits``: milliseconds until each was answered, in order.
    """

    a_second: float
    refusals: int
    cpu: float
    waits: Sequence[float]

    def at(self, part: float) -> float:
        return self.waits[int((len(self.waits) - 1) * part)]


# --- the clients, in a process of their own -------------------------------------------------------


def claim_request(name: str) -> bytes:
    body = json.dumps(
        {
            "id": uuid_of(f"claim-{name}"),
            "node": ROOT,
            "instance": instance_body(name),
            "flavor": flavor_body(F1),
        }
    ).encode()
    head = (
        "POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def answer_of(connection: socket.socket) -> bytes:
    """The status line, once the answer is there in full."""
    answer = connection.recv(65536)
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(
        next(
            line.partition(b":")[2]
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head.partition(b"\r\n")[0]


def drive(path: str, clients: int, number: int, prefix: str) -> None:
    """Claim, each client on its connection one after the other, and again what is refused because
    too many wait; print how many seconds all took, how many were refused, and how many milliseconds
    each took.
    """
    requests = iter([claim_request(f"{prefix}-{one}") for one in range(number)])
    selector, waits, refusals = selectors.DefaultSelector(), [], 0
    sent: dict[socket.socket, float] = {}
    asked: dict[socket.socket, bytes] = {}
    connections = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(clients)]
    for connection in connections:
        connection.connect(path)
        selector.register(connection, selectors.EVENT_READ)
    begun = time.perf_counter()
    for connection in connections:
        sent[connection], asked[connection] = time.perf_counter(), next(requests)
        connection.sendall(asked[connection])
    while sent:
        for key, _ in selector.select():
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            status, now = answer_of(connection), time.perf_counter()
            if status == BUSY:
                refusals += 1
                connection.sendall(asked[connection])
                continue
            assert status == CREATED, status
            waits.append(1000 * (now - sent.pop(connection)))
            if (request := next(requests, None)) is not None:
                sent[connection], asked[connection] = now, request
                connection.sendall(request)
    print(json.dumps([time.perf_counter() - begun, refusals, sorted(waits)]))


# --- the daemon -----------------------------------------------------------------------------------


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Claimed:
    """A daemon that runs for one row of the table."""

    def __init__(self, host: Host) -> None:
        self.host, self._turns, self.standing = host, 0, 0

    def rate(self, clients: int, number: int) -> Rate:
        self._turns, self.standing = self._turns + 1, self.standing + number
        process = self.host.service.process.pid
        command = [
            *(sys.executable, "-m", "bench.claims_over_socket", "--drive"),
            *(str(self.host.command.socket), str(clients), str(number), f"turn-{self._turns}"),
        ]
        before = cpu_seconds(process)
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT)
        cpu = cpu_seconds(process) - before
        seconds, refusals, waits = json.loads(told.stdout)
        return Rate(
            number / seconds,
            refusals,
            1000 * cpu / number,
            waits,
        )

    def settle(self) -> None:
        """Wait until all claims are published."""
        until(lambda: not self.host.records["dirty"], lambda: self.host.service)


@contextlib.contextmanager
def daemon(placement: HttpPlacement, checkout: Path, connection: str | None) -> Iterator[Claimed]:
    placement.reset()
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as folder:
        host = Host(Path(folder) / "agent", placement.url)
        (host.command.folder / "host.yaml").write_text(HOST)
        if connection is not None:
            host.config["store"] = {"connection": connection}
        host.command.configure(host.config)
        # With a variable of Python's own that differs, the daemon is not forked from a process that
        # has loaded the code of this checkout.
        with host.service.running(PYTHONPATH=str(checkout), PYTHONHASHSEED="1"):
            host.answers(host.client.readiness)
            process = Path(f"/proc/{host.service.process.pid}")
            assert b"agent" in (process / "cmdline").read_bytes().split(b"\0"), "it was forked"
            yield Claimed(host)


def rows(
    placement: HttpPlacement, checkout: Path, connection: str | None, asked: argparse.Namespace
) -> dict[Any, Rate]:
    """The rate of each number of clients, with few instances at first and with ``standing``."""
    found = {}
    with daemon(placement, checkout, connection) as claimed:
        claimed.rate(1, WARM)
        for standing in ("few", *([asked.standing] if asked.standing else [])):
            if standing != "few":
                claimed.rate(8, max(asked.standing - claimed.standing, 8))
            for clients in CLIENTS:
                claimed.settle()
                found[standing, clients] = claimed.rate(clients, asked.claims)
                told = best([found[standing, clients]])
                print(f"{checkout.name} {clients} {standing}: {told}", file=sys.stderr)
    return found


def best(runs: Sequence[Rate]) -> str:
    fastest = max(runs, key=lambda run: run.a_second)
    cells = [
        f"{fastest.a_second:.0f}",
        f"{median(run.cpu for run in runs):.2f}",
        f"{fastest.at(0.5):.1f}",
        f"{fastest.at(0.99):.1f}",
        f"{fastest.waits[-1]:.0f}",
        f"{fastest.refusals}",
    ]
    return " | ".join(cells)


def table(
    name: str, placement: HttpPlacement, checkouts: Sequence[Path], asked: Any, server: Any
) -> None:
    found: dict[Path, list[dict[Any, Rate]]] = {checkout: [] for checkout in checkouts}
    for _ in range(asked.runs):
        for checkout in checkouts:
            connection = server.url(server.create()) if server is not None else None
            found[checkout].append(rows(placement, checkout, connection, asked))
    for key in found[checkouts[0]][0]:
        for checkout in checkouts:
            which = "" if len(checkouts) == 1 else f"{checkout.name} | "
            cells = best([run[key] for run in found[checkout]])
            print(f"| {name} | {key[1]} | {key[0]} | {which}{cells} |", flush=True)


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--drive"]:
        path, clients, number, prefix = sys.argv[2:]
        drive(path, int(clients), int(number), prefix)
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkout", type=Path, action="append", default=[])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--claims", type=int, default=CLAIMS)
    parser.add_argument("--standing", type=int, default=STANDING)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], action="append")
    asked = parser.parse_args()
    checkouts = [*(one.resolve() for one in asked.checkout), CHECKOUT]
    with tempfile.TemporaryDirectory(prefix="agent-bench-") as folder:
        print(
            f"4 KiB are on the disk after {synced(Path(folder)):.2f} ms; load {os.getloadavg()}.\n"
        )
        placement = HttpPlacement(Path(folder))
        placement.start()
        which = "" if len(checkouts) == 1 else "checkout | "
        print(
            f"| store | clients | standing | {which}claims a second | CPU ms | ms: "
            "median | 99 % | worst | refused |"
        )
        print(f"|---|---:|---:|{'---|' if which else ''}---:|---:|---:|---:|---:|---:|")
        try:
            for store in asked.store or ["sqlite", "postgresql"]:
                server = PostgreSQL(durable=True) if store == "postgresql" else None
                try:
                    table(store, placement, checkouts, asked, server)
                finally:
                    if server is not None:
                        server.remove()
        finally:
            placement.stop()


if __name__ == "__main__":
    main()
