"""The page of a fleet, in Markdown."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.pages import machine_line, table

if TYPE_CHECKING:
    from bench.fleet import FleetResults, Phase

HOSTS, PERIOD = 10_000, 60
"""The fleet on paper: hosts, and seconds between two passes of each."""
PAPER: Sequence[tuple[int, int]] = ((1, 20), (73, 40))
"""Providers and guests of each host."""
READING = """\
{agents} agents, each with a configuration, a store (SQLite) and a thread of its own, on one openstack-placement with {workers} worker
processes on PostgreSQL; everything on one machine. Each host has {providers} providers (`fake.file`).

A process with one agent has {alone:.0f} MiB after its first pass. Because {agents} would need {sum:.1f} GiB, {in_process} agents share a
process ({resident:.0f} MiB each), and its interpreter. Count the requests; the times of passes in a storm are those of {processes} busy
processes and of Placement's workers on {processors} processors, the worst case.

- **request** is from the begin in a worker of Placement to its answer; **busiest second (even)** is how many began in it, and how many would if they were spread evenly.
- In the second phase every agent asks at once, as `agent --once` on all hosts. The third is what [daemons do](../costs.md#a-start): the first pass sends nothing, the second asks at an offset of the host's own.
"""


def fleet_page(results: "FleetResults") -> str:
    """Return the page."""
    reading = READING.format(
        agents=results.agents,
        workers=results.workers,
        providers=results.providers,
        alone=results.resident_alone,
        sum=results.agents * results.resident_alone / 1024,
        in_process=results.in_process,
        resident=results.resident,
        processes=-(-results.agents // results.in_process),
        processors=results.machine.processors,
    )
    head = ("phase", "passes", "errors", "requests", "a second", "busiest second (even)")
    times = ("pass: median", "99 %", "request: median", "99 %")
    costs = ("CPU of a request", "bytes of an answer")
    blocks = [
        "# A fleet\n",
        "<!-- written by python -m bench.fleet; do not edit -->\n",
        reading,
        "`python -m bench.fleet` in the environment of `tox -e bench` runs it again.\n",
        table((*head, *times, *costs), "l" + "r" * 11, [_row(phase) for phase in results.phases]),
        *(_errors(phase) for phase in results.phases if phase.errors),
        "## Ten thousand hosts, on paper\n",
        _paper(results),
        machine_line(results.machine),
    ]
    return "\n".join(blocks)


def _row(phase: "Phase") -> Sequence[str]:
    even = phase.requests / max(phase.seconds, 1)
    return (
        phase.name,
        str(phase.passes),
        str(sum(phase.errors.values())),
        str(phase.requests),
        f"{phase.requests / phase.seconds:.1f}",
        f"{phase.busiest_second} ({even:.0f})",
        f"{1000 * phase.pass_50:.0f} ms",
        f"{1000 * phase.pass_99:.0f} ms",
        f"{1000 * phase.request_50:.0f} ms",
        f"{1000 * phase.request_99:.0f} ms",
        f"{1000 * phase.placement_cpu:.1f} ms",
        f"{phase.answer_bytes:.0f}",
    )


def _errors(phase: "Phase") -> str:
    shown = "; ".join(f"{text} ({count} times)" for text, count in sorted(phase.errors.items())[:5])
    return f"Errors of “{phase.name}”: {shown}\n"


def _paper(results: "FleetResults") -> str:
    """Return the arithmetic: requests of both follow the budgets, which the page of the benchmarks
    checks; what one costs Placement is what it cost in the steady phase of this run.
    """
    cost = results.phases[-1].placement_cpu
    rows = [row for providers, guests in PAPER for row in _paper_rows(providers, guests, cost)]
    words = (
        f"{HOSTS} hosts, a pass each {PERIOD} seconds. The requests of one host are exact "
        "([of both](index.md), [of the agent's passes](../costs.md)): nova's tracker sends "
        "P + C + 1 in a steady period and 4P + C + 2 after a restart, the agent 1. A request costs "
        f"Placement {1000 * cost:.1f} ms of the processor, as in the steady phase: `processors` are "
        "those that it is busy with, `start` is how long a start of all hosts keeps 100 of them busy.\n"
    )
    head = ("host", "who", "requests a pass", "a second", "processors", "start: requests", "start")
    return words + "\n" + table(head, "ll" + "r" * 5, rows)


def _paper_rows(providers: int, guests: int, cost: float) -> Sequence[Sequence[str]]:
    sent: Mapping[str, tuple[int, int]] = {
        "nova": (providers + guests + 1, 4 * providers + guests + 2),
        "this agent": (1, 1),
    }
    rows = []
    for who, (steady, start) in sent.items():
        rate = HOSTS * steady / PERIOD
        rows.append(
            (
                f"P={providers} C={guests}",
                who,
                str(steady),
                f"{rate:.0f}",
                f"{rate * cost:.1f}",
                str(HOSTS * start),
                f"{HOSTS * start * cost / 100:.0f} s",
            )
        )
    return rows
