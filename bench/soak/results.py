"""The results of a soak as Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

from bench.pages import table


def markdown(document: Mapping[str, Any]) -> str:
    """Return the tables of a run."""
    return "\n".join(_blocks(document))


def _blocks(document: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{document['minutes']:g} minutes, seed {document['seed']}, {document['commit']}; "
        f"the clock: {document['clock']}. CPU of the daemon: {document['cpu_seconds']:g} s.\n"
    )
    yield _trends(document["trends"])
    yield _faults(document["faults"], document["log"]["expected"])
    yield from (f"Failed: {failure[:2000]}\n" for failure in document["failures"])


def _trends(trends: Mapping[str, Mapping[str, Any]]) -> str:
    """A run that is too short has none."""
    columns = ("first", "last", "least", "most", "slope", "late", "flat")
    rows = [[name, *(str(found[column]) for column in columns)] for name, found in trends.items()]
    return table(("figure", *columns), "l" + "r" * len(columns), rows)


def _faults(faults: Mapping[str, Mapping[str, Any]], expected: Mapping[str, int]) -> str:
    head = ("fault", "times", "longest until all was well, s", "warnings that it explains")
    rows = [
        [name, str(found["times"]), str(found["longest_recovery"]), str(expected.get(name, 0))]
        for name, found in faults.items()
    ]
    return table(head, "lrrr", rows)
