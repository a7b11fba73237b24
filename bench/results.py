"""Everything that one run of the bench has measured, with the machine and the versions."""

import datetime
import json
import os
import platform
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.claims import Claims
from bench.matrix import Row
from bench.numa_fit import FitRow
from bench.process_figures import ProcessFigures
from tests.support.postgresql import BINARIES

COUNTED_PACKAGES = ("compute-node-agent", "openstack-placement", "SQLAlchemy", "keystoneauth1")


@dataclass(frozen=True)
class Machine:
    """Where and with what was measured."""

    processor: str
    processors: int
    memory: float
    """GiB."""
    kernel: str
    versions: Mapping[str, str]
    started: str
    """UTC."""
    seconds: float
    """How long the run took."""
    load_before: float
    """Processes that wanted a processor in the five minutes before the run."""
    load_after: float
    """The same in its last fifteen minutes, with the run's own."""
    nice: int
    """How much the run left others the precedence: 0 is not at all, 19 most."""

    @property
    def calm(self) -> bool:
        """Whether it had no other work, so that times on the clock mean something."""
        return self.load_before < self.processors


@dataclass(frozen=True)
class Results:
    """One run. ``quick``: only passes, of the sizes that take seconds."""

    quick: bool
    rounds: int
    machine: Machine
    matrix: Sequence[Row]
    left_out: Sequence[str]
    """Sizes of the matrix that were not measured, and why."""
    failed: Sequence[str]
    """Parts of the run and sizes that had an error."""
    fits: Sequence[FitRow] = ()
    claims: Claims | None = None
    processes: ProcessFigures | None = None

    def document(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return asdict(self)


def rounded(value: Any) -> Any:
    """Return a document with six decimals at most."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value


def write_json(file: Path, document: Any) -> None:
    """Write a document."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rounded(document), indent=1, ensure_ascii=False) + "\n")


def machine(
    nova_python: str | None,
    began: datetime.datetime,
    load_before: tuple[float, float, float],
    commit: str,
) -> Machine:
    """Describe this machine, at the end of a run; ``load_before`` as ``os.getloadavg`` gave it,
    ``commit`` of the code that was measured.
    """
    return Machine(
        processor=_processor(),
        processors=os.cpu_count() or 0,
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={"commit": commit, **_versions(nova_python)},
        started=began.strftime("%Y-%m-%d %H:%M UTC"),
        seconds=(now() - began).total_seconds(),
        load_before=load_before[1],
        load_after=os.getloadavg()[2],
        nice=os.nice(0),
    )


def now() -> datetime.datetime:
    """Return the time."""
    return datetime.datetime.now(datetime.UTC)


def _processor() -> str:
    rows = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    return next((value.strip() for name, _, value in rows if name.strip() == "model name"), "?")


def _versions(nova_python: str | None) -> Mapping[str, str]:
    servers = sorted(BINARIES.glob("*/bin/postgres"))
    return {
        "Python": platform.python_version(),
        **{package: version(package) for package in COUNTED_PACKAGES},
        **({} if nova_python is None else {"nova": _version_of_nova(nova_python)}),
        "SQLite": sqlite3.sqlite_version,
        "PostgreSQL": servers[-1].parts[-3] if servers else "–",
    }


def _version_of_nova(python: str) -> str:
    asked = "import importlib.metadata as m, platform as p; print(m.version('nova'), p.python_version())"
    ran = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    nova, its_python = ran.stdout.split()
    return f"{nova} on Python {its_python}"
