"""Progress of work over many nodes: a bar on a terminal, lines in the log elsewhere."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agent.model.names import printable
from agent.render.look import look_of

LOG = logging.getLogger(__name__)

FEW = 2
LOG_STEPS = 10


@contextmanager
def node_progress(total: int, stream: TextIO) -> Iterator[Callable[[str], None]]:
    """A function to call with each finished node's name, from any thread.

    The bar goes to ``stream``, which is stderr, because stdout is the report's. It is gone when the work is done.
    """
    look = look_of(stream)
    if look.width is None or total < FEW:
        yield _logged(total)
        return
    console = Console(file=stream, color_system="standard" if look.colour else None, no_color=not look.colour, legacy_windows=False)
    columns = (TextColumn("auditing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda name: progress.update(task, advance=1, description=printable(name))


def _logged(total: int) -> Callable[[str], None]:
    done = 0

    def finished(name: str) -> None:
        nonlocal done
        done += 1
        if done == total or done * LOG_STEPS // total > (done - 1) * LOG_STEPS // total:
            LOG.info("%d of %d nodes audited, last %s", done, total, printable(name))

    return finished
