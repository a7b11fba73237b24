"""The daemon for an hour on a host where parts fail all the time: does anything grow, and does the log tell of anything that no fault explains?

``python -m bench.soak [--minutes M] [--seed S] [--out FOLDER]`` writes ``soak.json`` and ``soak.md``, and ends with 1 if a verdict fails. See
README.md in ``bench``.
"""

import argparse
import json
import os
import platform
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.commit import code_commit
from bench.soak.faults import FAULTS, Fault
from bench.soak.guests import Guests
from bench.soak.log_judge import LogJudge
from bench.soak.results import markdown
from bench.soak.samples import GROWTH, Sample, take_sample, trend
from bench.soak.site import Site, site_in

EVERY = 3.0
"""Seconds between two samples."""
CALM = 25.0
"""Seconds without a fault between two."""
LATE = 5.0
"""Seconds after a recovery in which messages of the fault may still come."""
RECOVERY = 180.0
"""Seconds within which all has to be as before once a fault is over, on a machine that is very busy."""
TICK = 0.25


class Soak:
    """One run. ``recovered``: how long each fault took to be over, in seconds, by its name."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._guests = Guests(site, random.Random(seed))
        self._judge = LogJudge(site.daemon.service.log_file)
        self._began = time.monotonic()
        self._fault: Fault | None = None
        # The faults whose messages may still come.
        self._explained: list[tuple[str, re.Pattern[str]]] = []
        self.samples: list[Sample] = []
        self.recovered: dict[str, list[float]] = {}
        self.failures: list[str] = []

    @property
    def second(self) -> float:
        """Of the run."""
        return time.monotonic() - self._began

    def run(self, seconds: float) -> None:
        """Let faults come one after the other, and everything come to its end."""
        script = self._faults()
        sampled, due = 0.0, self.second + CALM
        while self.second < seconds:
            self._tick()
            if self.second - sampled >= EVERY:
                sampled = self.second
                self._sample()
            if self.second >= due:
                due = self.second + next(script)
        while self._fault is not None:
            self._tick()
            next(script)
        self._end()

    def _tick(self) -> None:
        fault = self._fault
        self._guests.step(whole=fault is None)
        self._judge.read(self._explained)
        if self._site.daemon.service.process.poll() is not None:
            raise AssertionError(f"the daemon has ended:\n{self._site.daemon.service.log[-4000:]}")
        time.sleep(TICK)

    def _sample(self) -> None:
        daemon = self._site.daemon
        self.samples.append(
            take_sample(
                daemon.service.process.pid,
                daemon.command.store,
                self.second,
                calm=self._fault is None,
            )
        )

    def _faults(self) -> Iterator[float]:
        """Yield the seconds until it is to be continued."""
        for number in range(sys.maxsize):
            fault = FAULTS[number % len(FAULTS)]
            if "clock" in fault.name and not self._site.clock_can_be_set:
                continue
            self._fault = fault
            print(f"{self.second:7.1f} {fault.name}", flush=True)
            self._explained = [(fault.name, fault.pattern)]
            fault.begin(self._site)
            yield fault.seconds
            begun = self.second
            while fault.shows and not self._shows(fault.shows):
                if self.second - begun > RECOVERY:
                    self.failures.append(f"{fault.name}: no drift {fault.shows}")
                    break
                yield 0.5
            fault.end(self._site)
            if fault.heals:
                self._guests.heal()
            over = self.second
            while trouble := self._site.trouble or self._site.damage:
                if self.second - over > RECOVERY:
                    self.failures.append(f"{fault.name}: {trouble}")
                    break
                yield 0.5
            self.recovered.setdefault(fault.name, []).append(round(self.second - over, 1))
            self._fault = None
            yield LATE
            self._explained = []
            yield CALM - LATE

    def _shows(self, kind: str) -> bool:
        return any(found == kind for found, _ in self._site.daemon.drift())

    def _end(self) -> None:
        """Nothing may be left of what came and went."""
        site = self._site
        self._guests.end()
        over = self.second
        while self._left() and self.second - over < RECOVERY:
            time.sleep(1)
        if left := self._left():
            self.failures.append(f"left at the end: {left}")
        self._judge.read(self._explained)
        if (code := site.daemon.service.stop()[0]) != 0:
            self.failures.append(f"the daemon ended with {code}")
        self._judge.read(self._explained)
        dry = site.daemon.command.run("--once", "--dry-run", "--detailed-exitcode")
        if dry.code != 0:
            self.failures.append(f"a new process would change something: {dry}")
        self.failures += [f"refused: {one}" for one in self._guests.refused]
        self.failures += [f"unexplained: {line}" for line in self._judge.unexplained]

    def _left(self) -> str:
        site = self._site
        consumers = {
            uuid for uuid, one in site.placement.dump()["consumers"].items() if one["allocations"]
        } - {site.their_consumer}
        claims = [one["id"] for one in site.client.claims()]
        return (
            site.trouble
            or site.damage
            or (f"consumers {consumers}, claims {claims}" if consumers or claims else "")
        )

    def document(self, minutes: float, seed: int) -> dict[str, Any]:
        """All that was measured, and the verdicts."""
        trends = {name: trend(name, self.samples) for name in GROWTH}
        verdicts = {
            **{name: found.flat if found else None for name, found in trends.items()},
            "log": not self._judge.unexplained,
            "end": not self.failures,
        }
        last = self.samples[-1] if self.samples else None
        return {
            "minutes": minutes,
            "seed": seed,
            "machine": {
                "python": platform.python_version(),
                "kernel": platform.release(),
                "cores": os.cpu_count(),
            },
            "commit": code_commit(),
            "clock": "set ahead and back"
            if self._site.clock_can_be_set
            else "not set, because there is no C compiler",
            "verdicts": verdicts,
            "trends": {name: found.document() for name, found in trends.items() if found},
            "faults": {
                name: {"times": len(seconds), "longest_recovery": max(seconds)}
                for name, seconds in self.recovered.items()
            },
            "operations": dict(self._guests.done),
            "log": {"lines": self._judge.lines, "expected": dict(self._judge.expected)},
            "cpu_seconds": last.cpu_seconds if last else 0,
            "store_mib": [self.samples[0].store_mib, last.store_mib] if last else [],
            "failures": self.failures,
            "samples": [asdict(one) for one in self.samples],
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(), help="a folder for the results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agent-soak-") as folder, site_in(Path(folder)) as site:
        soak = Soak(site, asked.seed)
        try:
            soak.run(asked.minutes * 60)
        except BaseException as error:
            soak.failures.append(f"{type(error).__name__}: {error}")
            raise
        finally:
            document = soak.document(asked.minutes, asked.seed)
            asked.out.mkdir(parents=True, exist_ok=True)
            (asked.out / "soak.json").write_text(json.dumps(document, indent=1) + "\n")
            (asked.out / "soak.log").write_text(site.daemon.service.log)
            text = markdown(document)
            (asked.out / "soak.md").write_text(text)
            print(text)
    return 0 if all(verdict is not False for verdict in document["verdicts"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
