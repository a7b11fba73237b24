"""Disturbances of one run of the agent: a crash at the n-th boundary, or a fault at the n-th
request.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from hypothesis import strategies as st

from agent.store.store import Store
from tests.support import faults
from tests.support.placement import PlacementServer

# ---
# A crash: the end of a process, at a place that a test chose.


class Crash(BaseException):
    """The process is gone: nothing that catches errors sees it."""


def crash(*_args: Any) -> NoReturn:
    raise Crash


SAVES = ("save_capabilities", "save_view", "save_journal")
# How many requests and saves most runs of the trees here have: at a later one nothing happens.
REQUESTS, SAVED = 30, 4


FAULTS = {
    "conflict": lambda: faults.answer(409, "placement.concurrent_update"),
    "too-many": lambda: faults.answer(429),
    "server-error": lambda: faults.answer(500),
    "server-error-applied": lambda: faults.answer(500, applied=True),
    "unavailable": lambda: faults.answer(503),
    "unavailable-applied": lambda: faults.answer(503, applied=True),
    "bad-gateway": lambda: faults.html(502),
    "bad-gateway-applied": lambda: faults.html(502, applied=True),
    "cut": faults.cut,
    "cut-applied": lambda: faults.cut(applied=True),
    "timeout": faults.read_timeout,
    "timeout-applied": lambda: faults.read_timeout(applied=True),
    "half": faults.half_answer,
    "refused": faults.refused,
    "crash-before-request": lambda: faults.before(crash),
    "crash-after-request": lambda: faults.after(crash),
}
SAVE_KINDS = ("crash-before-save", "crash-after-save")
KINDS = (*FAULTS, *SAVE_KINDS)


@dataclass(frozen=True)
class Disturbance:
    """``kind`` hits boundary ``at``, counted from 0."""

    kind: str
    at: int


def disturbances() -> st.SearchStrategy[Disturbance]:
    """Any kind at any boundary; crashes as often as all faults together."""
    # Every run has the first few requests, and few have many.
    requests = st.one_of(st.integers(0, 5), st.integers(0, REQUESTS))
    crashes = st.builds(
        Disturbance, st.sampled_from(("crash-before-request", "crash-after-request")), requests
    )
    saves = st.builds(Disturbance, st.sampled_from(SAVE_KINDS), st.integers(0, SAVED))
    return st.one_of(
        crashes, saves, st.builds(Disturbance, st.sampled_from(sorted(FAULTS)), requests)
    )


@contextmanager
def disturbed(
    placement: PlacementServer, disturbance: Disturbance, hits: Counter[str]
) -> Iterator[None]:
    """Let the disturbance happen; a crash ends the block, and is not raised. Counted in ``hits`` if
    it came to happen.
    """
    saves = {name: getattr(Store, name) for name in SAVES}
    left = disturbance.at
    before = disturbance.kind == "crash-before-save"

    def counted(name: str) -> Any:
        def save(self: Store, *args: Any) -> None:
            nonlocal left
            left -= 1
            if left == -1 and before:
                raise Crash
            saves[name](self, *args)
            if left == -1:
                raise Crash

        return save

    rule = None
    if disturbance.kind in SAVE_KINDS:
        for name in SAVES:
            setattr(Store, name, counted(name))
    else:
        rule = placement.faults.add(FAULTS[disturbance.kind](), skip=disturbance.at)
    try:
        yield
    except Crash:
        pass
    finally:
        hits[disturbance.kind] += rule.hits if rule else int(left < 0)
        placement.faults.clear()
        for name, save in saves.items():
            setattr(Store, name, save)
