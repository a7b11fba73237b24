"""The results of a soak as Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

NAMES = {
    "rss_mib": "resident memory, MiB",
    "descriptors": "file descriptors",
    "threads": "threads",
}


def markdown(document: Mapping[str, Any]) -> str:
    """Return the tables of a run."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    machine = document["machine"]
    yield (
        f"{document['minutes']:g} minutes, seed {document['seed']}, {document['commit']}, Python {machine['python']}, "
        f"{machine['cores']} cores; the clock: {document['clock']}."
    )
    yield ""
    yield "| figure | first third | last third | least | most | per hour | per hour, second half | verdict |"
    yield "|---|---:|---:|---:|---:|---:|---:|---|"
    for name, label in NAMES.items():
        if (found := document["trends"].get(name)) is None:
            yield f"| {label} | | | | | | | the run is too short |"
            continue
        verdict = "flat" if found["flat"] else "grows"
        late = "" if found["late"] is None else f"{found['late']:+g}"
        yield (
            f"| {label} | {found['first']:g} | {found['last']:g} | {found['least']:g} | {found['most']:g} | {found['slope']:+g} | {late} | {verdict} |"
        )
    yield ""
    yield "| fault | times | longest until all was well, s | warnings and errors that it explains |"
    yield "|---|---:|---:|---:|"
    for name, found in document["faults"].items():
        yield f"| {name} | {found['times']} | {found['longest_recovery']:g} | {document['log']['expected'].get(name, 0)} |"
    yield ""
    operations = ", ".join(f"{name}: {amount}" for name, amount in document["operations"].items())
    yield f"Operations over the socket: {operations}. CPU of the daemon: {document['cpu_seconds']:g} s."
    for failure in document["failures"]:
        yield f"\nFailed: {failure[:2000]}"
