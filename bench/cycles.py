"""The agent as a process of its own, whose passes the bench asks for one by one: a line in, a pass,
its figures out.
"""

import gc
import json
import sys
import threading
import time
from pathlib import Path

import psutil

from agent.audit.context import AuditOptions
from agent.bootstrap.fleet import running_fleet
from agent.cli.command import Options, Source
from agent.cli.configuration import load

MIB = 1024 * 1024


def peak() -> float:
    """The most memory that this process had, in MiB."""
    # not from getrusage, because that remembers what the parent had when it forked
    (line,) = (
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    )
    return int(line.split()[1]) / 1024


def main() -> None:
    """One argument: the configuration file. Figures are JSON, a line a pass.

    The first pass includes the assembly of the process (store, driver), but not the imports: they
    do not grow.
    """
    conf = load(Options(sources=(Source(Path(sys.argv[1])),)))
    # As the command and the daemon do.
    gc.freeze()
    sys.stdin.readline()
    wall, cpu = time.perf_counter(), time.process_time()
    with running_fleet(conf, threading.Event()) as fleet:
        while True:
            report = fleet.run(AuditOptions(start=True))
            figures = {
                "seconds": time.perf_counter() - wall,
                "cpu": time.process_time() - cpu,
                "states": sorted({node.state for node in report.nodes}),
                "errors": [problem.message for problem in report.errors],
                "resident": psutil.Process().memory_info().rss / MIB,
                "peak": peak(),
            }
            print(json.dumps(figures), flush=True)
            if not sys.stdin.readline():
                return
            wall, cpu = time.perf_counter(), time.process_time()


if __name__ == "__main__":
    main()
