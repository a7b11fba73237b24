"""Whether nova-compute runs on this machine, or will after the next boot: processes, units, and its
record at nova.
"""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import psutil

from agent.http.nova_api import NovaApi, NovaNotAsked
from agent.model.names import printable
from agent.model.nova_answers import NovaService
from agent.render.checks import Check

PROGRAMS = frozenset({"nova-compute", "agent-nova-compute", "nova.cmd.compute"})
"""The last is its module, as ``python -m`` starts it."""
UNITS = ("nova-compute", "openstack-nova-compute", "devstack@n-cpu")
"""As distributions and devstack call its unit."""
# The options of Python that have a value as the next word. The value of -m is the program.
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
# Seconds that systemctl may take.
_DEADLINE = 10.0
# Seconds after its last beat in which nova takes nova-compute for running ([DEFAULT]
# service_down_time).
_BEATS = 60.0
_WRITES = "it writes the same resource providers, and starts and stops guests"


def nova_compute_checks() -> Iterator[Check]:
    """Yield the checks of the processes and of the units of nova-compute."""
    has_units = shutil.which("systemctl") is not None
    active = [unit for unit in UNITS if _answer("is-active", unit) == "active"] if has_units else []
    yield _process_check(active)
    yield (
        _unit_check(active)
        if has_units
        else Check("nova-compute-unit", "unknown", "there is no systemctl here, to ask for units")
    )


def service_check(nova: NovaApi | None, host: str) -> Check:
    """Return the check of the record that nova-compute keeps of itself at nova, where [nova] has
    credentials.
    """
    name = "nova-compute-service"
    if nova is None:
        return Check(
            name,
            "unknown",
            "not asked: section [nova] has no credentials",
            "[nova] auth_section = placement asks nova with those of [placement]",
        )
    try:
        service = nova.service(host)
    except NovaNotAsked as error:
        return Check(name, "warning", f"not known: {error.message}", error.remedy)
    if service is None:
        return Check(name, "ok", f"nova has no record of nova-compute on {printable(host)}")
    beat = f"last beat {service.updated_at or 'unknown'}"
    what = f"nova-compute on {printable(host)} is {service.state} and {service.status}, {beat}"
    if _beats(service):
        return Check(
            name,
            "blocks",
            f"{what}: {_WRITES}",
            "stop nova-compute; nova shows it as up for a minute after its last beat",
        )
    return Check(name, "ok", what)


def _beats(service: NovaService) -> bool:
    # A service that an operator forced down may still beat.
    recent = service.age is not None and service.age <= _BEATS
    return service.state == "up" or (service.forced_down and recent)


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
    names = [PurePath(word).name for word in words]
    if not names:
        return False
    # Its script is run by an interpreter; other programs may have its name as an argument.
    return not PROGRAMS.isdisjoint(_programs(names) if names[0].startswith("python") else names[:1])


def _programs(names: Sequence[str]) -> Sequence[str]:
    """Return the words of a command line of Python up to the script or module that it runs."""
    end = 1
    while end < len(names) and names[end].startswith("-"):
        end += 2 if names[end] in _WITH_VALUE else 1
    return names[: end + 1]


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
        ran = subprocess.run(  # noqa: S603 - fixed words # nosec B603, B607
            ["systemctl", question, f"{unit}.service"],  # noqa: S607 - where it is differs
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip()
