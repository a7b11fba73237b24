"""What the daemon's process uses, sampled while it runs, and the criterion for flat."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from bench.figures import status

WARM_UP = 0.2
"""The part of a run that does not count: caches fill, and each thread and module is used for the first time."""
LEAST = 10
"""Samples of each half, without which a run is too short for a verdict."""
GROWTH = {"rss_mib": 2.0, "descriptors": 0.0, "threads": 0.0}
"""By how much the median of the last third may be above that of the first third after the warm-up; and by how much a figure may grow in an hour, by
the slope of the second half of the run. What has come to rest after a warm-up that took longer does not; what grows slowly for ever does.
"""
LONG = 1800.0
"""Seconds of a run whose second half is after the warm-up of everything."""


@dataclass(frozen=True)
class Sample:
    """``second``: of the run. ``calm``: no fault was active, and the node was well. ``anon_mib``: the part of ``rss_mib`` that is no file's."""

    second: float
    rss_mib: float
    descriptors: int
    threads: int
    store_mib: float
    cpu_seconds: float
    calm: bool
    anon_mib: float = 0.0


def take_sample(pid: int, store: Path, second: float, *, calm: bool) -> Sample:
    """Read what the process uses now."""
    process = Path(f"/proc/{pid}")
    now = status(process / "status")
    # The name of the program stands in brackets and may contain anything.
    times = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    return Sample(
        round(second, 1),
        round(now["VmRSS"] / 1024, 2),
        len(list((process / "fd").iterdir())),
        now["Threads"],
        round(sum(file.stat().st_size for file in store.glob("database/store.sqlite*")) / 2**20, 2),
        round(sum(map(int, times)) / 100, 2),
        calm,
        round(now["RssAnon"] / 1024, 2),
    )


@dataclass(frozen=True)
class Trend:
    """How a figure developed. ``slope``: per hour, the median of the slopes of all pairs of samples, which single peaks do not move; ``late``:
    the same of the second half of a long run, None of a short one.
    """

    name: str
    first: float
    last: float
    least: float
    most: float
    slope: float
    late: float | None
    allowed: float
    samples: int

    @property
    def flat(self) -> bool:
        """Whether the figure did not grow."""
        return self.last - self.first <= self.allowed and (self.late or 0.0) <= self.allowed

    def document(self) -> dict[str, object]:
        """The figures, for JSON."""
        return {**asdict(self), "flat": self.flat}


def trend(name: str, samples: Sequence[Sample]) -> Trend | None:
    """Return how a figure developed in the calm samples after the warm-up; None if those are too few."""
    end = samples[-1].second if samples else 0.0
    counted = [one for one in samples if one.calm and one.second >= WARM_UP * end]
    if len(counted) < 3 * LEAST:
        return None
    value: Callable[[Sample], float] = lambda sample: float(getattr(sample, name))  # noqa: E731
    values = [value(one) for one in counted]
    third = len(counted) // 3
    return Trend(
        name,
        statistics.median(values[:third]),
        statistics.median(values[-third:]),
        min(values),
        max(values),
        _slope(counted, value),
        _slope([one for one in counted if one.second >= end / 2], value) if end >= LONG else None,
        GROWTH[name],
        len(counted),
    )


def _slope(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """Return by how much a figure grows in an hour."""
    # All pairs of at most some hundred samples.
    thinned = samples[:: max(1, len(samples) // 300)]
    slopes = [
        (value(later) - value(earlier)) / (later.second - earlier.second)
        for earlier, later in combinations(thinned, 2)
    ]
    return round(3600 * statistics.median(slopes), 3)
