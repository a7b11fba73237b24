"""The budgets of the agent, each checked against what was measured, with a verdict."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.claims import SQLITE, THREADS, Claims
from bench.matrix import Case, Row
from bench.numa_fit import FitRow
from bench.process_figures import ProcessFigures
from bench.results import Results
from bench.tree_driver import CELLS, Tree

# The agent marks its roots with a trait of its own.
OWN_TRAIT = 1
DISCOVERY = 5
RESHAPE_BASE, SPLIT = 6, 2
SOME_NODES, BATCH = 100, 50
HELD_RATIO, THREADS_RATIO = 1.2, 0.7
GROWTH = {"P": 0.05, "N": 1.0}
"""Milliseconds of the processor that a steady pass may take more for a provider, and for a node."""


@dataclass(frozen=True)
class Verdict:
    """One budget, what was found and the limit, in words."""

    budget: str
    found: str
    limit: str
    holds: bool | None
    """None if this run does not decide it."""
    kind: Literal["count", "cpu", "clock"] = "cpu"
    """What was found: a count, which is the same on every machine, time of the processor or memory,
    or time on the clock.
    """


def verdicts(results: Results) -> Iterator[Verdict]:
    """Yield a verdict for each budget.

    A time on the clock that is over its limit is not decided on a machine with other work.
    """
    for verdict in _verdicts(results):
        undecided = verdict.kind == "clock" and not (verdict.holds or results.machine.calm)
        yield replace(verdict, holds=None) if undecided else verdict


def _verdicts(results: Results) -> Iterator[Verdict]:
    agent = [row for row in results.matrix if row.peer == "agent"]
    yield from request_verdicts(agent)
    yield from _growth(agent)
    yield _in_flight(agent)
    yield from _fits(results.fits)
    if results.claims is not None:
        yield from _claims(results.claims)
    if results.processes is not None:
        yield from _processes(results.processes)


# --- requests -------------------------------------------------------------------------------------


def budgets_of_host() -> Mapping[Case, tuple[str, Callable[[Row], int]]]:
    """Return for each case of a host with P providers its budget, in words and as a function."""
    return {
        "first": ("P + T + 5 + K", lambda row: _first(_tree(row))),
        "first, one in flight": ("P + T + 5 + K", lambda row: _first(_tree(row))),
        "steady": ("1", lambda _: 1),
        "inventory": ("2", lambda _: 2),
        "conflict": (
            "a pass with its write, one structure, 3 reads of what moved, the write: 7; "
            "with a guest, as the claim before leaves one on a host, 4 reads: 8",
            lambda row: 7 + (row.nodes == 1),
        ),
        "trait": ("2", lambda _: 2),
        "recovery": ("1", lambda _: 1),
        "held": ("1, and one of usages", lambda _: 2),
        "restart": ("1", lambda _: 1),
        "restart, no mirror": ("3P + 2", lambda row: 3 * row.providers + 2),
        "claim": ("0", lambda _: 0),
        "reshape": ("C + I + 2·new + deleted + 6", _reshape),
    }


def _many_nodes() -> Mapping[Case, tuple[str, Callable[[Row], int]]]:
    """Return the same for N nodes."""
    return {
        "first": ("2N + N/50 + 10", lambda row: 2 * row.nodes + row.nodes // BATCH + 10),
        "steady": ("N/100 + 1", lambda row: row.nodes // SOME_NODES + 1),
        "restart": ("N/100 + 1", lambda row: row.nodes // SOME_NODES + 1),
    }


def _tree(row: Row) -> Tree:
    return Tree(row.providers, row.nodes)


def _first(tree: Tree) -> int:
    names = tree.custom_names + OWN_TRAIT
    return tree.providers + tree.with_traits + DISCOVERY + names


def _reshape(row: Row) -> int:
    # Every provider had an inventory, and none is deleted.
    return row.consumers + row.providers + 2 * SPLIT + RESHAPE_BASE


def request_verdicts(rows: Sequence[Row]) -> Iterator[Verdict]:
    """Yield a verdict for each budget of requests, on the agent's rows."""
    for nodes, budgets in ((False, budgets_of_host()), (True, _many_nodes())):
        of_size = [row for row in rows if (row.nodes > 1) == nodes]
        for case, (words, limit) in budgets.items():
            found = [row for row in of_size if row.case == case]
            name = f"requests, {'N nodes' if nodes else 'P providers'}, {case}"
            over = [row for row in found if row.figures.requests > limit(row)]
            told = over or found
            largest = max(told, key=lambda row: row.figures.requests, default=None)
            shown = "–"
            if largest is not None:
                shown = f"{largest.figures.requests} of {limit(largest)} ({largest.size})"
            yield Verdict(name, shown, words, not over if found else None, kind="count")


def _growth(rows: Sequence[Row]) -> Iterator[Verdict]:
    """Yield whether the steady cost grows with the tree: not in requests, and at most linearly in
    the time of the processor.
    """
    steady = [row for row in rows if row.case == "steady" and row.nodes == 1]
    counts = {row.figures.requests for row in steady}
    yield Verdict(
        "steady requests do not grow with P or C",
        ", ".join(map(str, sorted(counts))) or "–",
        "the same for all",
        len(counts) == 1 if steady else None,
        kind="count",
    )
    yield _linear(
        "P",
        {
            row.providers: row.figures.cpu
            for row in steady
            if row.providers > CELLS and row.consumers == 0 and row.backend == "sqlite"
        },
    )
    yield _linear(
        "N",
        {
            row.nodes: row.figures.cpu
            for row in rows
            if row.case == "steady" and row.nodes > 1 and row.backend == "sqlite"
        },
    )


def _linear(letter: str, cpu: Mapping[int, float]) -> Verdict:
    """Return whether the CPU time, by size, grows at most linearly from the smallest size on, and
    with a small constant.
    """
    budget = f"steady CPU grows at most linearly with {letter}"
    limit = f"{GROWTH[letter]:g} ms for each of {letter}"
    few = min(cpu, default=0)
    slopes = {
        many: 1000 * (seconds - cpu[few]) / (many - few)
        for many, seconds in cpu.items()
        if many >= 10 * few
    }
    if not slopes:
        return Verdict(budget, "–", limit, None)
    many = max(slopes, key=lambda size: slopes[size])
    found = f"{slopes[many]:.3f} ms from {letter}={few} to {many}"
    return Verdict(budget, found, limit, slopes[many] <= GROWTH[letter])


def _in_flight(rows: Sequence[Row]) -> Verdict:
    """Return whether several requests at once make the first pass shorter, on the largest host."""
    seconds = {
        (row.providers, row.consumers, row.case): row.figures.seconds
        for row in rows
        if row.backend == "postgresql"
    }
    one_by_one = [key for key in seconds if key[-1] == "first, one in flight"]
    budget, limit = (
        "first pass with several requests in flight, PostgreSQL",
        "shorter than with one",
    )
    if not one_by_one:
        return Verdict(budget, "–", limit, None)
    providers, consumers, case = max(one_by_one)
    ratio = seconds[providers, consumers, "first"] / seconds[providers, consumers, case]
    return Verdict(
        budget, f"{ratio:.2f} of its time, P={providers}", limit, ratio < 1, kind="clock"
    )


# --- claims and fits ------------------------------------------------------------------------------


def _claims(claims: Claims) -> Iterator[Verdict]:
    rates = {(row.store, row.threads, row.nodes): row.a_second for row in claims.rows}
    one, eight = rates[SQLITE, 1, 1], rates[SQLITE, THREADS, 1]
    yield Verdict(
        "claims a second, one thread, SQLite", f"{one:.0f}", "≥ 300", one >= 300, kind="clock"
    )
    yield Verdict(
        "claims from eight threads, together",
        f"{eight / one:.2f} times those of one thread",
        f"≥ {THREADS_RATIO} times",
        eight >= THREADS_RATIO * one,
        kind="clock",
    )
    audit = max(claims.audits.values())
    yield Verdict("audit of 1000 instances, CPU", f"{audit:.0f} ms", "≤ 500 ms", audit <= 500)


def _fits(rows: Sequence[FitRow]) -> Iterator[Verdict]:
    for row in rows:
        if row.budget is not None:
            beside = "" if row.nova is None else f", nova {row.nova:.1f} ms"
            yield Verdict(
                f"fit, {row.name}",
                f"{row.agent:.1f} ms{beside}",
                f"≤ {row.budget:g} ms",
                row.agent <= row.budget,
            )


# --- processes ------------------------------------------------------------------------------------


def _processes(found: ProcessFigures) -> Iterator[Verdict]:
    daemon = found.daemon
    away = daemon.claim_milliseconds_away / daemon.claim_milliseconds
    yield Verdict(
        "latency of a claim while Placement is away",
        f"{away:.2f} times",
        f"≤ {HELD_RATIO} times",
        away <= HELD_RATIO,
        kind="clock",
    )
    yield Verdict(
        "memory of the daemon after the first pass, P=73",
        f"{daemon.resident:.1f} MiB",
        "≤ 90 MiB",
        daemon.resident <= 90,
    )
    yield Verdict(
        "memory of the daemon after 500 claims, P=73",
        f"{daemon.resident_after_claims:.1f} MiB",
        "≤ 95 MiB",
        daemon.resident_after_claims <= 95,
    )
    yield Verdict(
        "claims a second over the socket, one client",
        f"{daemon.claims_a_second:.0f}",
        "≥ 200",
        daemon.claims_a_second >= 200,
        kind="clock",
    )
    yield Verdict(
        "99 % of the claims of eight clients at once",
        f"{daemon.claim_milliseconds_of_eight:.1f} ms",
        "≤ 50 ms",
        daemon.claim_milliseconds_of_eight <= 50,
        kind="clock",
    )
    limits = {"--version": 0.4, "--once, over HTTP": 1.2, "--once, embedded": 3.0}
    for command, limit in limits.items():
        took = found.commands[command]
        shown, holds = f"{took.seconds:.2f} s, CPU {took.cpu:.2f} s", took.seconds <= limit
        yield Verdict(f"agent {command}", shown, f"≤ {limit} s", holds, kind="clock")
    for name, seconds, limit in (
        ("copy of 513 providers", found.copy, 1.0),
        ("plan of 513 providers, no change", found.plan, 10.0),
    ):
        shown = f"{1000 * seconds:.2f} ms"
        yield Verdict(name, shown, f"≤ {limit:g} ms", 1000 * seconds <= limit)
