"""``agent watch``: shows the daemon and its nodes, again and again."""

import errno
import os
import select
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from math import isfinite

from oslo_config import cfg
from rich.console import Console
from rich.live import Live
from rich.text import Text

from agent.api.client import ApiClient, ApiProblem, ApiUnreachable
from agent.cli.command import Options
from agent.cli.daemon_client import client, select_nodes
from agent.cli.output import write
from agent.driver.worker import start_thread
from agent.errors import AgentError, ConfigError, OutputFailed
from agent.model.names import printable
from agent.model.report import DONE
from agent.render.look import Look, look_of
from agent.render.watch import Sight, failure_line, plain_lines, read_latency, screen_lines

INTERVAL = 2.0
"""Seconds from one look to the next."""
SHORTEST, LONGEST = 0.2, 3600.0
SLOW = 2.0
"""Seconds after which the display tells that an answer has not come yet."""
QUIT = b"qQ\x04"
"""The keys that quit: also the end of input."""
ENDING = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
ENDED_BY = 128
"""The exit code after a signal, less its number."""
ANSWERED = 0
"""Wakes the loop as the number of a signal does, and is none."""


def watch_nodes(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show all nodes, or those that ``--node`` names, until a key, a signal, or the end of whoever
    reads the output. Return the exit code.

    :raises ConfigError: the interval is none, or there is no such node.
    :raises OutputFailed: stdout is closed or cannot be written.
    :raises ApiProblem, ApiUnreachable: no daemon answers at the start.
    """
    interval = read_interval(options.arguments["interval"])
    daemon, wanted = client(conf), options.nodes
    sight = look_at(daemon, wanted, None)

    def again(before: Sight) -> Sight:
        return look_at(daemon, wanted, before)

    if sys.__stdout__ is None:
        # Python's main module has replaced it by /dev/null.
        raise OutputFailed("stdout is closed", "leave it open, or redirect it to a file")
    if _has_screen():
        return _Display(sight, again, interval, look_of(sys.stdout)).show()
    _in_lines(sight, again, interval)
    return DONE


def _has_screen() -> bool:
    term = os.environ.get("TERM", "")
    return sys.stdin.isatty() and sys.stdout.isatty() and term not in ("", "dumb", "unknown")


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
        lines = [failure_line(time.time(), failure)] if failure else plain_lines(sight)
        written = write("".join(f"{line}\n" for line in lines))
        if not written or _is_closed(sys.stdout.fileno(), interval):
            return
        sight, failure = _look_again(sight, partial(again, sight))


def _is_closed(stream: int, seconds: float) -> bool:
    """Wait, and return whether the reader of the stream went away meanwhile."""
    waiting = select.poll()
    # No event is asked for: that a pipe or a socket has no reader is always told.
    waiting.register(stream, 0)
    return bool(waiting.poll(1000 * seconds))


def _look_again(sight: Sight, look: Callable[[], Sight]) -> tuple[Sight, str]:
    """Return the next look; the last one, and why, if there is none. An agent that restarts answers
    again in a moment.
    """
    try:
        return look(), ""
    except (ApiProblem, ApiUnreachable) as error:
        return sight, _reason(error)


def _reason(error: AgentError) -> str:
    return f"{printable(error.message)}; {printable(error.remedy)}"


class _Display:
    """The display on the terminal of the process.

    Signals only wake the loop, which handles them between two writes, so that no half-written
    control sequence is left. The daemon is asked in a thread, so that a daemon that hangs keeps
    neither a key nor a signal waiting.
    """

    def __init__(
        self, sight: Sight, again: Callable[[Sight], Sight], interval: float, look: Look
    ) -> None:
        self._sight, self._again, self._interval, self._look = sight, again, interval, look
        self._failure = ""
        self._terminal = sys.stdin.fileno()
        self._settings = termios.tcgetattr(self._terminal)
        self._awaken, self._wake = socket.socketpair()
        self._live = Live()
        self._answer: Future[Sight] | None = None
        self._asked = time.monotonic()
        self._due = self._asked + interval

    def show(self) -> int:
        """Show the display until a key or a signal ends it. Return the exit code."""
        try:
            with self._woken_by_signals():
                try:
                    self._enter()
                    return self._run()
                finally:
                    self._leave()
        except (OSError, termios.error):
            # The terminal is gone.
            return ENDED_BY + signal.SIGHUP
        finally:
            self._awaken.close()
            self._wake.close()

    def _run(self) -> int:
        self._draw()
        while True:
            keys, signals = self._wait()
            if any(key in QUIT for key in keys):
                return DONE
            if signal.SIGINT in signals:
                raise KeyboardInterrupt
            for ending in signals & ENDING:
                return ENDED_BY + ending
            if signal.SIGTSTP in signals:
                self._stop()
            elif signal.SIGCONT in signals:
                # It was stopped by SIGSTOP: its shell has written to the terminal meanwhile.
                self._take_keys()
                self._live.stop()
                self._enter()
            if self._ask(at_once=bool(keys)) or signals:
                self._draw()

    def _draw(self) -> None:
        console = self._live.console
        lines = screen_lines(self._sight, self._look, console.size, self._failure)
        self._live.update(Text("\n", no_wrap=True, overflow="ellipsis").join(lines), refresh=True)

    def _wait(self) -> tuple[bytes, set[int]]:
        """Wait for keys, a signal, an answer, or the time of the next look. Return the keys and
        the signals.

        :raises OSError: the terminal is gone.
        """
        now = time.monotonic()
        wait = min(self._interval, SLOW) if self._answer is not None else max(0, self._due - now)
        ready, _, _ = select.select([self._terminal, self._awaken], [], [], wait)
        keys = os.read(self._terminal, 64) if self._terminal in ready else None
        if keys == b"":
            raise OSError(errno.EIO, "the terminal was closed")
        woken = self._awaken.recv(64) if self._awaken in ready else b""
        return keys or b"", set(woken) - {ANSWERED}

    def _ask(self, *, at_once: bool) -> bool:
        """Take an answer that has come, or ask again if it is time. Return whether the display
        changes.
        """
        now = time.monotonic()
        if self._answer is not None and self._answer.done():
            self._sight, self._failure = _look_again(self._sight, self._answer.result)
            self._answer, self._due = None, now + self._interval
            return True
        if self._answer is not None:
            if (waiting := now - self._asked) > SLOW:
                self._failure = f"asked {waiting:.0f} s ago"
            return waiting > SLOW
        if at_once or now >= self._due:
            before = self._sight
            self._asked = now
            self._answer = start_thread(lambda: self._again(before), "look")
            self._answer.add_done_callback(self._tell_of_answer)
        return False

    def _tell_of_answer(self, _answer: Future[Sight]) -> None:
        # The display may have ended meanwhile.
        with suppress(OSError):
            self._wake.send(bytes([ANSWERED]))

    @contextmanager
    def _woken_by_signals(self) -> Iterator[None]:
        for end in (self._awaken, self._wake):
            end.setblocking(False)
        before = {
            number: handler
            for number in (signal.SIGINT, *ENDING, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
            # As nohup wants it.
            if (handler := signal.getsignal(number)) is not signal.SIG_IGN
        }
        wakeup = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in before:
            signal.signal(number, _only_wake)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)

    def _stop(self) -> None:
        """Give the terminal back, stop as the user wants it, and show the display again."""
        self._leave()
        kept = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT)}
        for number in kept:
            signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        for number, handler in kept.items():
            signal.signal(number, handler)
        self._enter()

    def _enter(self) -> None:
        self._take_keys()
        console = Console(
            file=sys.stdout,
            force_terminal=True,
            color_system="standard" if self._look.colour else None,
            no_color=not self._look.colour,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live = Live(console=console, screen=True, auto_refresh=False)
        self._live.start()

    def _leave(self) -> None:
        try:
            self._live.stop()
        finally:
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._settings)

    def _take_keys(self) -> None:
        """Get keys from the terminal one by one and unseen. In the background, the process is
        stopped here until it comes to the foreground. Keys that were pressed before are kept.
        """
        while True:
            try:
                tty.setcbreak(self._terminal, termios.TCSADRAIN)
            except termios.error as error:
                if error.args[0] != errno.EINTR:
                    raise
            else:
                return


def _only_wake(_signal: int, _frame: object) -> None:
    """Do nothing: the signal's number is in the stream that wakes the loop."""
