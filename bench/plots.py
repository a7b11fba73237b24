"""The plots of a run, as SVG."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot

from bench.matrix import MEANINGS, PEERS, Row
from bench.numa_fit import FitRow
from bench.processes import Pass

mpl.use("svg")
mpl.rcParams |= {"svg.hashsalt": "bench", "svg.fonttype": "none", "font.size": 9}
COLOURS = {"nova": "#b0492f", "agent": "#2f6db0"}
NAMES = {"nova": "nova 34", "agent": "this agent"}
UNCOUNTED = ("outage",)


def write_plots(folder: Path, rows: Sequence[Row], fits: Sequence[FitRow]) -> Mapping[str, str]:
    """Write the plots of a run into ``folder``; return file names with what they show."""
    shown = {
        "requests.svg": _requests(folder / "requests.svg", _largest(rows)),
        "cpu.svg": _growth(
            folder / "cpu.svg", rows, lambda found: 1000 * found.cpu, "CPU of the process, ms"
        ),
        "placement.svg": _growth(
            folder / "placement.svg",
            rows,
            lambda found: 1000 * found.placement_cpu,
            "CPU of Placement, ms",
        ),
        "memory.svg": _growth(
            folder / "memory.svg",
            rows,
            lambda found: found.resident,
            "resident memory, MiB",
            scale="linear",
        ),
    }
    if fits:
        shown["fits.svg"] = _fits(folder / "fits.svg", fits)
    return shown


def _largest(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of the largest host that both have been measured on."""
    both = [row for row in rows if row.peer == "nova" and row.nodes == 1]
    size = max((row.providers, row.consumers, row.backend == "sqlite") for row in both)
    return [
        row
        for row in rows
        if row.nodes == 1 and (row.providers, row.consumers, row.backend == "sqlite") == size
    ]


def _save(file: Path, figure: Any) -> None:
    figure.tight_layout()
    # Without the date, so that equal figures are equal files.
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def _requests(file: Path, rows: Sequence[Row]) -> str:
    cases = [case for case in MEANINGS if case not in UNCOUNTED]
    peers = {case: {row.peer for row in rows if row.case == case} for case in cases}
    measured = [case for case in cases if len(peers[case]) == len(PEERS)]
    figure, axes = pyplot.subplots(figsize=(7, 3.6))
    for place, peer in enumerate(PEERS):
        found = {row.case: row.figures.requests for row in rows if row.peer == peer}
        heights = [found[case] for case in measured]
        places = [number + 0.4 * place for number in range(len(measured))]
        bars = axes.bar(places, heights, 0.38, color=COLOURS[peer], label=NAMES[peer])
        axes.bar_label(bars, fontsize=7)
    axes.set_yscale("symlog")
    axes.set_ylabel("requests")
    axes.set_xticks([number + 0.2 for number in range(len(measured))], measured, rotation=30)
    axes.legend()
    _save(file, figure)
    return f"Requests of each case, {rows[0].size}, {rows[0].backend}"


def _growth(
    file: Path,
    rows: Sequence[Row],
    value: Callable[[Pass], float],
    label: str,
    scale: str = "log",
) -> str:
    """Plot the steady pass against P, for the most guests, and against N."""
    figure, (hosts, nodes) = pyplot.subplots(1, 2, figsize=(7, 3.2), sharey=True)
    steady = [row for row in rows if row.case == "steady" and row.backend == "sqlite"]
    for peer in PEERS:
        of_peer = [row for row in steady if row.peer == peer]
        sizes: dict[int, Row] = {}
        for row in sorted(of_peer, key=lambda row: row.consumers):
            if row.nodes == 1:
                sizes[row.providers] = row
        _line(hosts, {size: value(row.figures) for size, row in sizes.items()}, peer)
        many = {row.nodes: value(row.figures) for row in of_peer if row.nodes > 1}
        _line(nodes, many, peer)
    for axes, title in ((hosts, "providers P"), (nodes, "nodes N")):
        axes.set_xscale("log")
        axes.set_yscale(scale)
        if scale == "linear":
            axes.set_ylim(bottom=0)
        axes.set_xlabel(title)
        axes.grid(visible=True, alpha=0.3)
    hosts.set_ylabel(label)
    hosts.legend()
    _save(file, figure)
    return f"{label}, of a steady pass, with the most guests measured"


def _line(axes: Any, points: Mapping[int, float], peer: str) -> None:
    sizes = sorted(points)
    axes.plot(sizes, [points[size] for size in sizes], "o-", color=COLOURS[peer], label=NAMES[peer])


def _fits(file: Path, fits: Sequence[FitRow]) -> str:
    figure, axes = pyplot.subplots(figsize=(7, 0.26 * len(fits) + 1))
    places = range(len(fits))
    axes.barh(places, [row.agent for row in fits], color=COLOURS["agent"], label=NAMES["agent"])
    answered = [(place, row.nova) for place, row in enumerate(fits) if row.nova is not None]
    limited = [(place, row.budget) for place, row in enumerate(fits) if row.budget is not None]
    nova = {"color": COLOURS["nova"], "marker": "D", "linestyle": "", "label": NAMES["nova"]}
    axes.plot([time for _, time in answered], [place for place, _ in answered], **nova)
    budget = {"color": "#444444", "marker": "|", "linestyle": "", "label": "budget"}
    axes.plot([time for _, time in limited], [place for place, _ in limited], **budget)
    axes.set_yticks(places, [row.name for row in fits], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("CPU ms")
    axes.legend()
    _save(file, figure)
    return "Fits of guests to the cells of a host"
