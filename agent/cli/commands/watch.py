"""``agent watch``: shows the daemon and its nodes, again and again."""

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite

from oslo_config import cfg
from rich.console import Console
from rich.live import Live
from rich.text import Text

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from agent.cli.command import Options
from agent.cli.daemon_client import client, select_nodes
from agent.cli.output import write
from agent.errors import AgentError, ConfigError
from agent.model.names import printable
from agent.model.report import DONE
from agent.render.look import Look, look_of
from agent.render.watch import Sight, plain_lines, read_latency, screen_lines

INTERVAL = 2.0
"""Seconds from one look to the next."""
SHORTEST, LONGEST = 0.2, 3600.0
QUIT = b"qQ\x04"
"""The keys that quit: also the end of input."""
TERMINATED = 128 + signal.SIGTERM


def watch_nodes(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show all nodes, or those that ``--node`` names, until a key, a signal, or the end of whoever
    reads the output. Return the exit code.

    :raises ConfigError: the interval is none, or there is no such node.
    :raises ApiProblem, ApiUnreachable: no daemon answers at the start.
    """
    interval = read_interval(options.arguments["interval"])
    daemon, wanted = client(conf), options.nodes
    sight = look_at(daemon, wanted, None)
    look = look_of(sys.stdout)

    def again(before: Sight) -> Sight:
        return look_at(daemon, wanted, before)

    if (
        sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "")
        not in (
            "",
            "dumb",
            "unknown",
        )
    ):
        _on_screen(sight, again, interval, look)
    else:
        _in_lines(sight, again, interval)
    return DONE


def read_interval(text: str | None) -> float:
    """Return the seconds between two looks.

    :raises ConfigError: ``text`` is no number of seconds that is possible.
    """
    try:
        seconds = INTERVAL if text is None else float(text)
    except ValueError:
        seconds = float("nan")
    if not (isfinite(seconds) and SHORTEST <= seconds <= LONGEST):
        raise ConfigError(
            f"--interval {printable(str(text))}: not a number of seconds",
            f"give {SHORTEST:g} to {LONGEST:g}",
        )
    return seconds


def look_at(daemon: ApiClient, wanted: Sequence[str], before: Sight | None) -> Sight:
    """Look at the daemon once: three requests, and one more for each further thousand nodes.

    ``wanted``: as the values of ``--node``. ``before``: the look before this one.

    :raises ApiProblem, ApiUnreachable: it does not answer.
    :raises ConfigErrors: there is no such node.
    """
    try:
        ready, status = True, daemon.readiness()
    except ApiProblem as problem:
        if problem.status != 503:
            raise
        ready, status = False, problem.message
    nodes = list(daemon.nodes())
    latency = read_latency(daemon.metrics())
    return Sight(
        at=time.time(),
        ready=ready,
        status=status,
        # An agent that has just started knows no node yet.
        nodes=select_nodes(nodes, wanted) if nodes else (),
        latency=latency,
        recent=latency.since(before.latency if before is not None else None),
    )


def _in_lines(sight: Sight, again: Callable[[Sight], Sight], interval: float) -> None:
    """Write lines until nobody reads them."""
    failure = ""
    while True:
        lines = [f"{failure}\n"] if failure else [f"{line}\n" for line in plain_lines(sight)]
        if not write("".join(lines)) or _is_closed(sys.stdout.fileno(), interval):
            return
        sight, failure = _look_again(sight, again)


def _is_closed(stream: int, seconds: float) -> bool:
    """Wait, and return whether the reader of the stream went away meanwhile."""
    waiting = select.poll()
    # No event is asked for: that a pipe or a socket has no reader is always told.
    waiting.register(stream, 0)
    return bool(waiting.poll(1000 * seconds))


def _on_screen(sight: Sight, again: Callable[[Sight], Sight], interval: float, look: Look) -> None:
    """Show the display on the terminal until a key quits."""
    console = Console(
        file=sys.stdout,
        force_terminal=True,
        color_system="standard" if look.colour else None,
        no_color=not look.colour,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    failure = ""
    with (
        _single_keys(sys.stdin.fileno()),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            lines = screen_lines(sight, look, console.height, failure)
            live.update(Text("\n", no_wrap=True, overflow="ellipsis").join(lines), refresh=True)
            if _is_quit(sys.stdin.fileno(), interval):
                return
            sight, failure = _look_again(sight, again)


def _look_again(sight: Sight, again: Callable[[Sight], Sight]) -> tuple[Sight, str]:
    """Return the next look; the last one, and why, if there is none. An agent that restarts answers
    again in a moment.
    """
    try:
        return again(sight), ""
    except (ApiProblem, ApiUnreachable) as error:
        return sight, _reason(error)


def _reason(error: AgentError) -> str:
    return f"{printable(error.message)}; {printable(error.remedy)}"


@contextmanager
def _single_keys(terminal: int) -> Iterator[None]:
    """Get keys from the terminal one by one and unseen. It is as before afterwards, also if the
    process is told to end.
    """

    def end(_signal: int, _frame: object) -> None:
        raise SystemExit(TERMINATED)

    before, handler = termios.tcgetattr(terminal), signal.signal(signal.SIGTERM, end)
    try:
        tty.setcbreak(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, handler)


def _is_quit(terminal: int, seconds: float) -> bool:
    """Wait for a key; return whether it quits. Other keys end the wait."""
    ready, _, _ = select.select([terminal], [], [], seconds)
    if not ready:
        return False
    keys = os.read(terminal, 64)
    return not keys or any(key in QUIT for key in keys)
