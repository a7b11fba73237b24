"""Whether nova-compute runs on this machine, or will after the next boot: processes and units."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import psutil

from agent.render.takeover import Check

PROGRAMS = frozenset({"nova-compute", "agent-nova-compute", "nova.cmd.compute"})
"""The last is its module, as ``python -m`` starts it."""
UNITS = ("nova-compute", "openstack-nova-compute", "devstack@n-cpu")
"""As distributions and devstack call its unit."""
# The words of a command line among which the program of an interpreter is.
_BEGIN = 4
# Seconds that systemctl may take.
_DEADLINE = 10.0
_WRITES = "it writes the same resource providers, and starts and stops guests"


def nova_compute_checks() -> Iterator[Check]:
    """Yield the checks of the processes and of the units of nova-compute."""
    has_units = shutil.which("systemctl") is not None
    active = [unit for unit in UNITS if _answer("is-active", unit) == "active"] if has_units else []
    yield _process_check(active)
    yield (
        _unit_check(active)
        if has_units
        else Check("nova-compute-unit", "ok", "there is no systemctl here, so units are not known")
    )


def _process_check(active: Sequence[str]) -> Check:
    name, found = "nova-compute-process", sorted(_processes())
    if not found:
        return Check(name, "ok", "no process of nova-compute is seen on this machine")
    return Check(
        name,
        "blocks",
        f"nova-compute runs (pid {', '.join(map(str, found))}): {_WRITES}",
        f"systemctl disable --now {' '.join(active)}" if active else "stop it where it is started",
    )


def _processes() -> Iterator[int]:
    for process in psutil.process_iter(["pid", "cmdline"]):
        if is_nova_compute(process.info["cmdline"] or ()):
            yield process.info["pid"]


def is_nova_compute(words: Sequence[str]) -> bool:
    """Return whether a command line is that of nova-compute."""
    names = [PurePath(word).name for word in words[:_BEGIN]]
    if not names:
        return False
    # Its script is run by an interpreter; other programs may have its name as an argument.
    program = names if names[0].startswith("python") else names[:1]
    return not PROGRAMS.isdisjoint(program)


def _unit_check(active: Sequence[str]) -> Check:
    name, units = "nova-compute-unit", " ".join(active)
    if active:
        what = f"unit {units} is active: {_WRITES}"
        return Check(name, "blocks", what, f"systemctl disable --now {units}")
    if enabled := " ".join(unit for unit in UNITS if _answer("is-enabled", unit) == "enabled"):
        what = f"unit {enabled} is enabled: it starts with the next boot"
        return Check(name, "warning", what, f"systemctl disable {enabled}")
    return Check(name, "ok", f"none of these units is active or enabled: {', '.join(UNITS)}")


def _answer(question: str, unit: str) -> str:
    """Return what systemctl answers about a unit; empty if it does not answer."""
    try:
        ran = subprocess.run(  # noqa: S603 - fixed words
            ["systemctl", question, f"{unit}.service"],  # noqa: S607 - where it is differs
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip()
