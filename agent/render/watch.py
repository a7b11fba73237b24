"""The display of ``agent watch``: the daemon, its nodes, claims, drift, and Placement's latency."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from agent.model.names import number_of, printable
from agent.model.report import WELL
from agent.render.look import Look, escape_text, table_lines
from agent.render.node_lines import state_style

Document = Mapping[str, Any]

LATENCY = "compute_node_agent_placement_request_seconds"
HEADINGS = (
    "node",
    "state",
    "audited",
    "last well",
    "CPUs",
    "memory MiB",
    "disk MiB",
    "instances",
    "claims",
    "drift",
    "warnings",
    "errors",
)
WORDS = 4
"""The first columns hold words, the others numbers."""
NAME_AT_MOST = 40
"""A longer name is cut off, so that the numbers stay on the line; on a narrow screen the state."""
NAME_AT_LEAST = 8
FAILURE = 3
"""The place of the failure among the first lines."""
FEW_NODES = 4
"""A screen without room for the heading and some nodes beside the other lines leaves these out."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Requests to Placement and their duration together, in seconds, since the agent started."""

    requests: int
    seconds: float

    @property
    def mean(self) -> float | None:
        """Seconds of one request; None if there was none."""
        return self.seconds / self.requests if self.requests else None

    def since(self, before: "Latency | None") -> "Latency":
        """Return the requests after ``before``; all if another agent has begun to count."""
        if before is None or before.requests > self.requests:
            return self
        return Latency(self.requests - before.requests, self.seconds - before.seconds)


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look at the daemon has shown."""

    at: float
    """Seconds since the epoch."""
    ready: bool
    status: str
    nodes: Sequence[Document]
    """The summaries of the nodes that are shown."""
    latency: Latency
    recent: Latency
    """Since the look before."""


def read_latency(metrics: str) -> Latency:
    """Return the requests to Placement that the daemon's metrics count."""
    sums: defaultdict[str, float] = defaultdict(float)
    found = "\n".join(line for line in metrics.splitlines() if line.startswith(LATENCY))
    for family in text_string_to_metric_families(f"# TYPE {LATENCY} histogram\n{found}\n"):
        for sample in family.samples:
            sums[sample.name] += sample.value
    return Latency(int(sums[f"{LATENCY}_count"]), sums[f"{LATENCY}_sum"])


def screen_lines(sight: Sight, look: Look, size: tuple[int, int], failure: str = "") -> list[Text]:
    """Return the display for a screen of that many columns and lines: nodes that are not well
    first. A screen of few lines has the daemon's line and the nodes.

    ``failure``: why the last look failed; ``sight`` is then an earlier one.
    """
    width, height = size
    head, tail = _head(sight, look, failure), _tail(sight)
    if height < len(head) + len(tail) + FEW_NODES:
        head, tail = [head[FAILURE if failure else 0]], []
    nodes = sorted(sight.nodes, key=_urgency)
    # One more line is the table's heading, and one counts the nodes that are not shown.
    room = height - len(head) - len(tail) - 1
    shown = nodes[: max(1, room if len(nodes) <= room else room - 1)]
    heading, *rows = table_lines(HEADINGS, [_row(node, sight.at, width) for node in shown], WORDS)
    table = [heading]
    for node, row in zip(shown, rows, strict=True):
        row.stylize(state_style(node["state"]) if node["state"] not in WELL else "")
        table.append(row)
    if more := len(nodes) - len(shown):
        table.append(Text(f"and {number_of(more, 'node')} more: agent status shows all", "dim"))
    return [*head, *table, *tail]


def _head(sight: Sight, look: Look, failure: str) -> list[Text]:
    sign = f" {look.signs.dot} "
    return [
        Text.assemble(
            escape_text(sight.status, f"bold {'green' if sight.ready else 'yellow'}"),
            escape_text(f"{sign}{_moment(sight.at)}{sign}q quits", "dim"),
        ),
        Text(sign.join(_totals(sight))),
        Text(f"Placement: {_latency(sight)}"),
        escape_text(f"the agent does not answer: {failure}", "bold red") if failure else Text(),
        Text(),
    ]


def _tail(sight: Sight) -> list[Text]:
    kinds: Counter[str] = Counter()
    for node in sight.nodes:
        kinds.update(node["drift_kinds"])
    if not kinds:
        return []
    found = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return [Text(), Text(f"drift: {found} (agent drift)", "yellow")]


def plain_lines(sight: Sight) -> Iterator[str]:
    """Yield one line for the daemon and one for each node, for output that is no terminal."""
    at = _moment(sight.at)
    yield f"{at} {printable(sight.status)}; Placement: {_latency(sight)}"
    for node in sight.nodes:
        usage = node["usage"]
        yield (
            f"{at} {printable(node['name'])} {node['state']}: audited "
            f"{_ago(node['audited_at'], sight.at)}, used {number_of(usage['vcpus_used'], 'CPU')}, "
            f"{usage['memory_mb_used']} MiB memory, {usage['disk_mb_used']} MiB disk, "
            f"{number_of(usage['instances'], 'instance')}, {number_of(usage['claims'], 'claim')}, "
            f"drift {node['drift']}, errors {len(node['errors'])}"
        )


def failure_line(at: float, failure: str) -> str:
    """Return the line for a look that failed, for output that is no terminal."""
    return f"{_moment(at)} the agent does not answer: {failure}"


def _totals(sight: Sight) -> Iterator[str]:
    states = Counter(node["state"] for node in sight.nodes)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    yield f"{number_of(len(sight.nodes), 'node')}{f': {counts}' if counts else ''}"
    for noun in ("instance", "claim", "migration"):
        yield number_of(sum(node["usage"][f"{noun}s"] for node in sight.nodes), noun)
    yield f"drift {sum(node['drift'] for node in sight.nodes)}"


def _latency(sight: Sight) -> str:
    if sight.latency.mean is None:
        return "not asked yet"
    whole = f"{_milliseconds(sight.latency)} a request, {sight.latency.requests} since the start"
    if sight.recent.mean is None:
        return whole
    return (
        f"{_milliseconds(sight.recent)} a request ({number_of(sight.recent.requests, 'request')} "
        f"since the last look); {whole}"
    )


def _milliseconds(latency: Latency) -> str:
    return f"{1000 * (latency.mean or 0):.0f} ms"


def _urgency(node: Document) -> tuple[bool, bool, str]:
    return node["state"] in WELL, not node["drift_warnings"], node["name"]


def _row(node: Document, now: float, width: int) -> tuple[str, ...]:
    name, usage = printable(node["name"]), node["usage"]
    most = min(NAME_AT_MOST, max(NAME_AT_LEAST, width // 3))
    good = node["last_good_audit_at"]
    return (
        name if cell_len(name) <= most else set_cell_size(name, most - 3) + "...",
        node["state"],
        _ago(node["audited_at"], now),
        _ago(good, now) if good is not None else "never",
        *(str(usage[key]) for key in ("vcpus_used", "memory_mb_used", "disk_mb_used")),
        *(str(usage[key]) for key in ("instances", "claims")),
        *(str(node[key]) for key in ("drift", "drift_warnings")),
        str(len(node["errors"])),
    )


def _ago(at: float, now: float) -> str:
    return f"{max(0, now - at):.0f} s ago"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
