"""The page of a run, in Markdown."""

from collections.abc import Iterator, Mapping, Sequence

from bench.budgets import Verdict
from bench.claims import Claims
from bench.matrix import MEANINGS, Case, Row, size_words
from bench.numa_fit import FitRow
from bench.placement_site import IN_FLIGHT, WORKERS, Backend
from bench.process_figures import ProcessFigures
from bench.processes import Pass
from bench.results import Machine, Results

PLOT = "![Requests, CPU and memory of a steady pass, with the most guests measured](growth.svg)\n"
VERDICTS = {True: "holds", False: "**missed**", None: "not decided"}
BACKENDS: Mapping[Backend, str] = {
    "sqlite": "Placement on SQLite, one process",
    "postgresql": f"Placement on PostgreSQL, {WORKERS} processes",
}
READING = """\
nova-compute's resource tracker with nova's report client, and this agent, report the same tree to the same real
openstack-placement over HTTP. Both run the same driver code (`bench/tree_driver.py`), in processes of their own, in turns;
nothing else uses that Placement. {rounds}

- **P** providers: a root, up to eight cells below it, the others devices below the cells. **C** guests, which hold CPUs and
  memory of the root, and a function of a device. **N** bare-metal nodes, each a root of its own.
- **requests** are counted at Placement's side. They are exact, and the same on every machine.
- **CPU** is the time of the processor in the measured process; **Placement** is what its own code took for these requests.
  Times are noisy, and depend on the machine: compare the two columns of one row, and their ratio, and not rows of different runs.
- nova's database is left out: what nova would read from it or write to it costs nothing here. The agent's store is a file.
- A period of nova's tracker also asks for each node who holds something of its root. That is one request of nova's steady pass for each node.
- `held`, `conflict`, `recovery` and `restart, no mirror` have a budget of the agent, and are not measured of nova.
- The agent has one request under way at a time on SQLite, and {in_flight} on PostgreSQL; nova always has one.
"""

BUDGETS = """\
Counts and CPU times decide on every machine. A time on the clock that is over its limit decides nothing if the machine had other work before the run
(more processes that wanted a processor than it has): then it is `not decided`, as is what this run left out.
"""


def page(results: Results, verdicts: Sequence[Verdict]) -> str:
    """Return the page."""
    blocks = [
        "# Benchmarks\n",
        "<!-- written by python -m bench.run; do not edit -->\n",
        *_introduction(results),
        *(() if results.quick else (PLOT,)),
        "## Budgets\n",
        BUDGETS,
        table(
            ("budget", "found", "limit", "verdict"),
            "llll",
            [
                (verdict.budget, verdict.found, verdict.limit, VERDICTS[verdict.holds])
                for verdict in verdicts
            ],
        ),
        *_matrix(results.matrix),
        *_left_out(results),
        *_growth(results.matrix),
        *_others(results),
    ]
    return "\n".join(blocks)


def _introduction(results: Results) -> Iterator[str]:
    if results.quick:
        yield (
            "These figures are of a quick run, of the sizes that take seconds: they show that the "
            "counts are right.\n"
        )
    rounds = "Each size was measured once."
    if results.rounds > 1:
        rounds = f"Of {results.rounds} rounds the one with the least CPU time counts."
    yield READING.format(rounds=rounds, in_flight=IN_FLIGHT)
    yield (
        "Run it again with `tox -e bench`; `bench/README.md` tells how. [A fleet](fleet.md) has "
        "many agents on one Placement.\n"
    )
    yield "## Machine and versions\n"
    yield table(("what", "value"), "ll", machine_rows(results.machine))


def machine_rows(machine: Machine) -> Sequence[tuple[str, str]]:
    """Return the rows of the machine and the versions."""
    return [
        ("processor", f"{machine.processors} × {machine.processor}"),
        ("memory", f"{machine.memory:.0f} GiB"),
        ("kernel", machine.kernel),
        ("started", f"{machine.started}, for {machine.seconds / 60:.0f} minutes"),
        (
            "load before and at the end",
            f"{machine.load_before:.1f}, {machine.load_after:.1f} (with the run's own)",
        ),
        ("nice", str(machine.nice)),
        *machine.versions.items(),
    ]


# --- the matrix -----------------------------------------------------------------------------------


def _matrix(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Passes\n"
    yield table(("case", "what it is"), "ll", list(MEANINGS.items()))
    for backend, title in BACKENDS.items():
        found = [row for row in rows if row.backend == backend]
        if found:
            yield f"### {title}\n"
            yield _passes(found)


def _left_out(results: Results) -> Iterator[str]:
    """Yield what has no figures."""
    if results.left_out:
        yield f"Left out: {'; '.join(results.left_out)}.\n"
    if results.failed:
        yield f"**Failed**: {'; '.join(results.failed)}.\n"


def _growth(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how the steady pass of the agent grows, on SQLite."""
    steady = {
        (row.nodes, row.providers, row.consumers): row.figures
        for row in rows
        if (row.peer, row.case, row.backend) == ("agent", "steady", "sqlite")
    }
    yield "## Growth of the agent's steady pass\n"
    body = [
        (
            size_words(providers, consumers, nodes),
            _requests(found),
            f"{1000 * found.cpu:.1f}",
            f"{found.resident:.0f}",
            f"{found.peak:.0f}",
        )
        for (nodes, providers, consumers), found in sorted(steady.items())
    ]
    yield table(("size", "requests", "CPU ms", "MiB", "peak MiB"), "lrrrr", body)


def _passes(rows: Sequence[Row]) -> str:
    peers: dict[tuple[str, Case], dict[str, Pass]] = {}
    for row in rows:
        peers.setdefault((row.size, row.case), {})[row.peer] = row.figures
    head = ["size", "case"]
    for figure in ("requests", "s", "CPU ms", "Placement CPU ms"):
        head += [f"{figure}: nova", "agent"]
    body = [
        (size, case, *_cells(both.get("nova"), both.get("agent")))
        for (size, case), both in peers.items()
    ]
    return table((*head, "CPU, agent / nova"), "ll" + "r" * 9, body)


def _cells(nova: Pass | None, agent: Pass | None) -> Iterator[str]:
    for figure in (_requests, _seconds, _cpu, _placement):
        for found in (nova, agent):
            yield "–" if found is None else figure(found)
    known = nova is not None and agent is not None and nova.cpu > 0
    yield f"{agent.cpu / nova.cpu:.3f}" if known and nova and agent else "–"


def _requests(found: Pass) -> str:
    return str(found.requests)


def _seconds(found: Pass) -> str:
    return f"{found.seconds:.2f}"


def _cpu(found: Pass) -> str:
    return f"{1000 * found.cpu:.0f}"


def _placement(found: Pass) -> str:
    return f"{1000 * found.placement_cpu:.0f}"


# --- fits, claims, processes ----------------------------------------------------------------------


def _others(results: Results) -> Iterator[str]:
    if results.fits:
        yield from _fits(results.fits)
    if results.claims is not None:
        yield from _claims(results.claims)
    if results.processes is not None:
        yield from _processes(results.processes, results.matrix)


def _fits(fits: Sequence[FitRow]) -> Iterator[str]:
    yield "## Fits\n"
    yield (
        "Guests of dedicated CPUs on the cells of a host, with real devices, CPU time; `nova` is "
        "`numa_fit_instance_to_host` where it answers within a minute.\n"
    )
    rows = [
        (
            row.name,
            row.outcome,
            f"{row.agent:.1f}",
            "–" if row.nova is None else f"{row.nova:.1f}",
            "–" if row.nova is None else f"{row.agent / row.nova:.1f}",
        )
        for row in fits
    ]
    yield table(("guest cells on host cells", "outcome", "ms", "nova", "ratio"), "llrrr", rows)


def _claims(claims: Claims) -> Iterator[str]:
    yield "## Claims\n"
    yield (
        "In one process, each on the disk before the next one of its thread begins. 4 KiB are on "
        f"the disk after {claims.synced:.2f} ms; `syncs` is how many times as long a claim takes. nova's `instance_claim` is "
        "the case `claim` [above](#passes): without its database, with its requests to Placement.\n"
    )
    rows = []
    for row in claims.rows:
        syncs = 1000 / row.a_second / claims.synced
        cells = [f"{row.a_second:.0f}", f"{row.cpu_milliseconds:.2f}"]
        cells += [f"{row.milliseconds_median:.1f}", f"{row.milliseconds_99:.1f}", f"{syncs:.1f}"]
        rows.append((row.store, str(row.threads), str(row.nodes), *cells))
    head = ("store", "threads", "nodes", "claims a second", "CPU ms", "ms: median", "99 %", "syncs")
    yield table(head, "l" + "r" * 7, rows)


def _processes(found: ProcessFigures, matrix: Sequence[Row]) -> Iterator[str]:
    yield "## Processes\n"
    daemon = found.daemon
    rows = [
        ("daemon with API, P=73, after the first pass", f"{daemon.resident:.1f} MiB"),
        ("its threads", str(daemon.threads)),
        ("its memory after 500 claims", f"{daemon.resident_after_claims:.1f} MiB"),
        (
            "claims a second over the socket, one client that connects for each",
            f"{daemon.claims_a_second:.0f}",
        ),
        ("a claim, median", f"{daemon.claim_milliseconds:.1f} ms"),
        (
            "a claim of eight clients at once, 99 %",
            f"{daemon.claim_milliseconds_of_eight:.1f} ms",
        ),
        ("the same while Placement is away", f"{daemon.claim_milliseconds_away:.1f} ms"),
        *(
            (f"agent {command}", f"{took.seconds:.2f} s, CPU {took.cpu:.2f} s")
            for command, took in found.commands.items()
        ),
    ]
    # Of the largest host that both were measured on, after its first pass.
    firsts = [row for row in matrix if row.case == "first" and row.nodes == 1]
    most = max((row.providers for row in firsts if row.peer == "nova"), default=0)
    shown = {row.peer: row.figures for row in firsts if row.providers == most}
    for peer, figures in shown.items():
        what = "nova's tracker alone" if peer == "nova" else "the agent's passes alone"
        rows.append(
            (
                f"{what}, P={most}, after the first pass",
                f"{figures.resident:.1f} MiB, {figures.threads} threads",
            )
        )
    yield table(("what", "value"), "lr", rows)


def table(head: Sequence[str], alignment: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a table; ``alignment`` has l or r for each column."""
    marks = {"l": "---", "r": "---:"}
    lines = [head, [marks[one] for one in alignment], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
