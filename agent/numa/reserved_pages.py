"""Pages that the operator keeps for the host: ``node:0,size:2048,count:64``. No I/O."""

from collections.abc import Mapping, Sequence

from agent.errors import ConfigError, ConfigErrors
from agent.model.names import printable
from agent.model.topology import Topology
from agent.numa.page_pools import page_pools
from agent.numa.page_size import parse_page_size

SHAPE = "write it like node:0,size:2048,count:64"
KEYS = ("node", "size", "count")


def reserved_pages(texts: Sequence[str], topology: Topology) -> Mapping[tuple[int, int], int]:
    """(cell, size in KiB) to pages, of everything in ``texts``.

    :raises ConfigErrors: everything that is wrong with them.
    """
    errors: list[ConfigError] = []
    pages: dict[tuple[int, int], int] = {}
    for text in texts:
        try:
            node, size, count = _entry(text)
            _check(node, size, count, topology)
            if (node, size) in pages:
                raise ConfigError(f"pages of {size} KiB on node {node} are reserved twice", "leave one of the two out")
            pages[node, size] = count
        except ConfigError as error:
            errors.append(ConfigError(f"reserved pages {printable(text)!r}: {error.message}", error.remedy))
    if errors:
        raise ConfigErrors(errors)
    return pages


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


def _check(node: int, size: int, count: int, topology: Topology) -> None:
    cells = {cell.id: cell for cell in topology.cells}
    if node not in cells:
        raise ConfigError(f"node {node} is not there", f"the host has {', '.join(str(cell) for cell in cells)}")
    totals = {pool.size_kib: pool.total for pool in page_pools(cells[node])}
    if size not in totals:
        raise ConfigError(f"node {node} has no pages of {size} KiB", f"it has {', '.join(str(one) for one in sorted(totals))}")
    if count > totals[size]:
        raise ConfigError(f"node {node} has only {totals[size]} pages of {size} KiB", "reserve fewer")
