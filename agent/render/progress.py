"""The progress of an audit or of an operator's work, node by node."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO

from agent.model.names import printable
from agent.render.look import look_of

LOG = logging.getLogger(__name__)

# The number of nodes from which on progress is shown.
MANY = 5
LOG_STEPS = 10

Finished = Callable[[str], None]


@contextmanager
def node_progress(stream: TextIO) -> Iterator[Callable[[int], Finished]]:
    """Yield a function that takes the number of nodes; it returns a function to call with the name
    of each finished node, from any thread.

    The bar goes to ``stream``, which is stderr, because stdout is for the report. The bar is
    removed when the work is done.
    """
    look = look_of(stream)
    with ExitStack() as stack:

        def begin(total: int) -> Finished:
            if total < MANY:
                return lambda _name: None
            if look.width is None:
                return _log_progress(total)
            # Imported here, because it takes a twentieth of a short audit.
            from rich import progress as bar
            from rich.console import Console

            console = Console(
                file=stream,
                color_system="standard" if look.colour else None,
                no_color=not look.colour,
                legacy_windows=False,
            )
            columns = (
                bar.TextColumn("auditing"),
                bar.BarColumn(),
                bar.MofNCompleteColumn(),
                bar.TimeElapsedColumn(),
                bar.TextColumn("{task.description}", markup=False),
            )
            progress = stack.enter_context(bar.Progress(*columns, console=console, transient=True))
            task = progress.add_task("", total=total)
            return lambda name: progress.update(task, advance=1, description=printable(name))

        yield begin


def _log_progress(total: int) -> Finished:
    done = 0

    def finished(name: str) -> None:
        nonlocal done
        done += 1
        if done == total or done * LOG_STEPS // total > (done - 1) * LOG_STEPS // total:
            LOG.info("%d of %d nodes audited, last %s", done, total, printable(name))

    return finished
