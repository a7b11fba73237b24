"""The plot of a run, as SVG: how the steady pass grows with the tree and with the nodes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot

from bench.matrix import PEERS, Row
from bench.processes import Pass

mpl.use("svg")
mpl.rcParams |= {"svg.hashsalt": "bench", "svg.fonttype": "none", "font.size": 9}
FIGURES: Sequence[tuple[str, Callable[[Pass], float]]] = (
    ("requests", lambda found: found.requests),
    ("CPU, ms", lambda found: 1000 * found.cpu),
    ("memory, MiB", lambda found: found.resident),
)


def write_plot(file: Path, rows: Sequence[Row]) -> None:
    """Write a row of two graphs for each figure: against P, with the most guests, and against N."""
    figure, grid = pyplot.subplots(3, 2, figsize=(7, 7), sharex="col", sharey="row")
    steady = [row for row in rows if row.case == "steady" and row.backend == "sqlite"]
    steady.sort(key=lambda row: row.consumers)
    for (label, value), pair in zip(FIGURES, grid, strict=True):
        pair[0].set_ylabel(label)
        for axes, many in zip(pair, (False, True), strict=True):
            axes.set(xscale="log", yscale="log")
            axes.grid(visible=True, alpha=0.3)
            for peer in PEERS:
                found = [row for row in steady if row.peer == peer and (row.nodes > 1) == many]
                points = {row.nodes if many else row.providers: value(row.figures) for row in found}
                axes.plot(*zip(*sorted(points.items()), strict=True), "o-", label=peer)
    grid[0][0].legend()
    for axes, label in zip(grid[-1], ("providers P", "nodes N"), strict=True):
        axes.set_xlabel(label)
    figure.tight_layout()
    # Without the date, so that equal figures are equal files.
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
