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

VERDICTS = {True: "holds", False: "**missed**", None: "not decided"}
SHOWN = ("P=73 C=100", "N=100")
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
nova-compute's resource tracker with its report client, and this agent, report the same tree to the same openstack-placement over HTTP, in turns. {rounds}
`tox -e bench` runs it again; `results.json` has all figures, [A fleet](fleet.md) many agents on one Placement.

- **P** providers: a root, up to eight cells, devices below them. **C** guests. **N** bare-metal nodes, each a root of its own.
- **requests** are counted at Placement's side, and the same on every machine. **CPU** is that of the measured process: compare the columns of one row only.
- nova's database is left out.
"""


def page(results: Results, verdicts: Sequence[Verdict]) -> str:
    """Return the page."""
    blocks = [
        "# Benchmarks\n",
        "<!-- written by python -m bench.run; do not edit -->\n",
        *_introduction(results),
        *_beside_nova(results.matrix),
        *_left_out(results),
        *_slower(results.matrix, results.fits),
        *_budgets(verdicts),
        *([] if results.claims is None else _claims(results.claims)),
        *([] if results.processes is None else _processes(results.processes)),
        machine_line(results.machine),
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


def machine_line(machine: Machine) -> str:
    """Return the sentence on the machine and the versions."""
    told = ("commit", "Python", "openstack-placement", "nova")
    versions = ", ".join(
        f"{name} {machine.versions[name]}" for name in told if name in machine.versions
    )
    return (
        f"Measured on {machine.processors} × {machine.processor} with {machine.memory:.0f} GiB, "
        f"{machine.kernel}, on {machine.started}, at a load of {machine.load_after:.1f}; {versions}.\n"
    )


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
    slower: dict[Case, list[tuple[float, str]]] = {}
    for row, nova in _pairs(rows):
        if row.figures.cpu > nova.cpu:
            found = (row.figures.cpu / nova.cpu, row.size)
            slower.setdefault(row.case, []).append(found)
    yield "## What is slower than in nova, and why\n"
    body = []
    for case, sizes in slower.items():
        times, worst = max(sizes)
        body.append((case, str(len(sizes)), f"{worst} ({times:.1f} times)", REASONS.get(case, "")))
    yield table(("case", "sizes", "at most", "because"), "lrll", body)
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
    yield f"{len(verdicts) - len(open_ones)} of {len(verdicts)} budgets hold.\n"
    if open_ones:
        body = [(one.budget, one.found, one.limit, VERDICTS[one.holds]) for one in open_ones]
        yield table(("budget", "found", "limit", "verdict"), "llll", body)


# --- claims, processes ----------------------------------------------------------------------------


def _claims(claims: Claims) -> Iterator[str]:
    yield "## Claims and processes\n"
    rates = ", ".join(
        f"{row.a_second:.0f} ({row.store}, {row.threads} threads on {row.nodes} nodes)"
        for row in claims.rows
    )
    yield (
        f"Claims a second, each on the disk before the next one of its thread begins: {rates}. "
        f"4 KiB are on the disk after {claims.synced:.2f} ms.\n"
    )


def _processes(found: ProcessFigures) -> Iterator[str]:
    daemon = found.daemon
    commands = ", ".join(
        f"agent {command} {took.seconds:.2f} s" for command, took in found.commands.items()
    )
    yield (
        f"A daemon with the API and 73 providers has {daemon.resident:.1f} MiB after its first pass, "
        f"{daemon.resident_after_claims:.1f} MiB after 500 claims, and {daemon.threads} threads. A "
        f"claim over the socket takes {daemon.claim_milliseconds:.1f} ms, "
        f"{daemon.claim_milliseconds_away:.1f} ms while Placement is away; {commands}.\n"
    )


def table(head: Sequence[str], alignment: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a table; ``alignment`` has l or r for each column."""
    marks = {"l": "---", "r": "---:"}
    lines = [head, [marks[one] for one in alignment], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
