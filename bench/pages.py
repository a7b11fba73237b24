"""The page of a run, in Markdown: what was found beside nova, and what is slower. All figures are in
results.json.
"""

from collections.abc import Iterator, Mapping, Sequence

from bench.budgets import Verdict
from bench.claims import Claims
from bench.matrix import MEANINGS, Case, Row
from bench.numa_fit import FitRow
from bench.process_figures import ProcessFigures
from bench.processes import Pass
from bench.results import Machine, Results

PLOT = "![Requests, CPU and memory of a steady pass, with the most guests measured](growth.svg)\n"
VERDICTS = {True: "holds", False: "**missed**", None: "not decided"}
SHOWN = ("P=1 C=0", "P=73 C=100", "P=513 C=100", "N=100")
"""The sizes that are on the page."""
REASONS: Mapping[Case, str] = {
    "first": "the tree is written to the store before it is sent",
    "steady": "the records are compared with the host",
    "inventory": "the change is written to the store before and after it is sent",
    "trait": "the change is written to the store before and after it is sent",
    "outage": "the pass makes a report, and retries with pauses",
    "restart": "the store is opened and checked",
    "claim": "the claim is on the disk when it is granted",
    "reshape": "all allocations that move are read, and the change is written to the store",
}
READING = """\
nova-compute's resource tracker with nova's report client, and this agent, report the same tree to the same real
openstack-placement over HTTP, in turns. {rounds} Run it again with `tox -e bench`; `bench/README.md` tells how.
[A fleet](fleet.md) has many agents on one Placement; `results.json` has all figures.

- **P** providers: a root, up to eight cells, devices below them. **C** guests. **N** bare-metal nodes, each a root of its own.
- **requests** are counted at Placement's side. They are the same on every machine.
- **CPU** is that of the measured process. Compare the two columns of one row, not rows of different runs.
- nova's database is left out: what nova reads there costs nothing here. The agent's store is a file.
"""


def page(results: Results, verdicts: Sequence[Verdict]) -> str:
    """Return the page."""
    blocks = [
        "# Benchmarks\n",
        "<!-- written by python -m bench.run; do not edit -->\n",
        *_introduction(results),
        *(() if results.quick else (PLOT,)),
        *_beside_nova(results.matrix),
        *_left_out(results),
        *_slower(results.matrix, results.fits),
        *_budgets(verdicts),
        *([] if results.claims is None else _claims(results.claims)),
        *([] if results.processes is None else _processes(results.processes, results.matrix)),
        "## Machine and versions\n",
        table(("what", "value"), "ll", machine_rows(results.machine)),
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
    yield READING.format(rounds=rounds)


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


# --- beside nova ----------------------------------------------------------------------------------


def _pairs(rows: Sequence[Row]) -> Iterator[tuple[Row, Pass]]:
    """Yield what the agent and nova needed for the same, on SQLite."""
    novas = {(row.size, row.case): row.figures for row in _on_sqlite(rows) if row.peer == "nova"}
    for row in _on_sqlite(rows):
        if row.peer == "agent" and (row.size, row.case) in novas:
            yield row, novas[row.size, row.case]


def _on_sqlite(rows: Sequence[Row]) -> Iterator[Row]:
    return (row for row in rows if row.backend == "sqlite")


def _beside_nova(rows: Sequence[Row]) -> Iterator[str]:
    shown = [(row, nova) for row, nova in _pairs(rows) if row.size in SHOWN]
    cases = {row.case for row, _ in shown}
    yield "## Beside nova\n"
    yield "".join(f"- **{case}**: {MEANINGS[case]}.\n" for case in MEANINGS if case in cases)
    head = ("size", "case", "requests: nova", "agent", "CPU ms: nova", "agent", "agent / nova")
    body = [
        (
            row.size,
            row.case,
            str(nova.requests),
            str(row.figures.requests),
            f"{1000 * nova.cpu:.0f}",
            f"{1000 * row.figures.cpu:.0f}",
            f"{row.figures.cpu / nova.cpu:.2f}",
        )
        for row, nova in shown
    ]
    yield table(head, "llrrrrr", body)


def _left_out(results: Results) -> Iterator[str]:
    """Yield what has no figures."""
    if results.left_out:
        yield f"Left out: {'; '.join(results.left_out)}.\n"
    if results.failed:
        yield f"**Failed**: {'; '.join(results.failed)}.\n"


def _slower(rows: Sequence[Row], fits: Sequence[FitRow]) -> Iterator[str]:
    """Yield where the agent takes more of the processor than nova, and why."""
    sizes: dict[Case, list[str]] = {}
    for row, nova in _pairs(rows):
        if row.figures.cpu > nova.cpu:
            text = f"{row.size} ({row.figures.cpu / nova.cpu:.1f} times)"
            sizes.setdefault(row.case, []).append(text)
    yield "## What is slower than in nova, and why\n"
    body = [(case, ", ".join(found), REASONS.get(case, "")) for case, found in sizes.items()]
    yield table(("case", "CPU of the agent, in that of nova", "because"), "lll", body)
    slow = [
        f"{fit.name} ({fit.agent:.1f} instead of {fit.nova:.1f} ms)"
        for fit in fits
        if fit.nova is not None and fit.agent > fit.nova
    ]
    if fits:
        yield (
            f"Of {len(fits)} guests whose cells and devices were fitted to a host, the worst took "
            f"{max(fit.agent for fit in fits):.0f} ms. Slower than nova's "
            f"`numa_fit_instance_to_host`: {'; '.join(slow) or 'none'}.\n"
        )


def _budgets(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield how many budgets hold, and those that do not."""
    open_ones = [one for one in verdicts if not one.holds]
    yield "## Budgets\n"
    yield f"{len(verdicts) - len(open_ones)} of {len(verdicts)} budgets hold.\n"
    if open_ones:
        body = [(one.budget, one.found, one.limit, VERDICTS[one.holds]) for one in open_ones]
        yield table(("budget", "found", "limit", "verdict"), "llll", body)


# --- claims, processes ----------------------------------------------------------------------------


def _claims(claims: Claims) -> Iterator[str]:
    yield "## Claims\n"
    yield (
        "In one process, each on the disk before the next one of its thread begins. 4 KiB are on "
        f"the disk after {claims.synced:.2f} ms; `syncs` is how many times as long a claim takes. nova's `instance_claim` is "
        "the case `claim` [above](#beside-nova): without its database, with its requests to Placement.\n"
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
