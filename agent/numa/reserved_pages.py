"""Pages that the operator keeps for the host: ``node:0,size:2048,count:64``. No I/O."""

from collections.abc import Iterator, Mapping, Sequence

from agent.errors import ConfigError, ConfigErrors
from agent.model.names import number_of, printable
from agent.model.topology import Topology
from agent.numa.page_pools import page_pools
from agent.numa.page_size import parse_page_size

OPTION = "[DEFAULT] reserved_huge_pages"
SHAPE = "write it like node:0,size:2048,count:64"
KEYS = ("node", "size", "count")

ReservedPages = Mapping[tuple[int, int], int]
"""(cell, size in KiB) to pages kept for the host."""


def parse_reserved_pages(texts: Sequence[str]) -> ReservedPages:
    """Everything in ``texts``.

    :raises ConfigErrors: everything that is wrong with them, whatever the host has.
    """
    errors: list[ConfigError] = []
    pages: dict[tuple[int, int], int] = {}
    for text in texts:
        try:
            node, size, count = _entry(text)
            if (node, size) in pages:
                raise ConfigError(f"pages of {size} KiB on node {node} are reserved twice", "leave one of the two out")
            pages[node, size] = count
        except ConfigError as error:
            errors.append(ConfigError(f"{OPTION} = {printable(text)}: {error.message}", error.remedy))
    if errors:
        raise ConfigErrors(errors)
    return pages


def unreservable(pages: ReservedPages, topology: Topology) -> Iterator[ConfigError]:
    """Every entry that the host cannot give."""
    cells = {cell.id: cell for cell in topology.cells}
    for (node, size), count in pages.items():
        what = f"{OPTION} = node:{node},size:{size},count:{count}"
        if node not in cells:
            yield ConfigError(f"{what}: node {node} is not there", f"the host has {', '.join(str(cell) for cell in cells)}")
            continue
        totals = {pool.size_kib: pool.total for pool in page_pools(cells[node])}
        if size not in totals:
            yield ConfigError(f"{what}: node {node} has no pages of {size} KiB", f"it has {', '.join(str(one) for one in sorted(totals))}")
        elif count > totals[size]:
            yield ConfigError(f"{what}: node {node} has only {number_of(totals[size], 'page')} of {size} KiB", "reserve fewer")


def _entry(text: str) -> tuple[int, int, int]:
    items = [item.partition(":") for item in text.split(",") if item.strip()]
    given = {key.strip(): value.strip() for key, _, value in items}
    if unknown := [key for key in given if key not in KEYS]:
        raise ConfigError(f"{printable(unknown[0])} is not known", SHAPE)
    if len(given) < len(items):
        raise ConfigError("a key is given twice", SHAPE)
    if missing := [key for key in KEYS if not given.get(key)]:
        raise ConfigError(f"{missing[0]} is missing", SHAPE)
    for key in ("node", "count"):
        if not (given[key].isascii() and given[key].isdecimal()):
            raise ConfigError(f"{key} {printable(given[key])!r} is no number", SHAPE)
    try:
        return int(given["node"]), parse_page_size(given["size"]), int(given["count"])
    except ValueError as error:
        raise ConfigError(f"size {printable(given['size'])!r} is {error}", SHAPE) from error
