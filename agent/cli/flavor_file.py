"""The flavor in a file: as the local API takes it, or as ``openstack flavor show`` or nova's API
shows it.
"""

import difflib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from agent.cli.daemon_client import RequestUnreadable, display_name, read_request_file
from agent.model.instance import Flavor
from agent.model.inventory import MAX_INT
from agent.model.names import printable
from agent.tracker.request_checks import MAX_GB, MAX_VCPUS

AMOUNTS = {
    "vcpus": ("vcpus",),
    "memory_mb": ("memory_mb", "ram"),
    "root_gb": ("root_gb", "disk"),
    "ephemeral_gb": ("ephemeral_gb", "ephemeral", "OS-FLV-EXT-DATA:ephemeral"),
    "swap_mb": ("swap_mb", "swap"),
}
"""The names of a flavor's amounts: of the local API, of ``openstack flavor show``, of nova."""
LARGEST = {
    "vcpus": MAX_VCPUS,
    "memory_mb": MAX_INT,
    "root_gb": MAX_GB,
    "ephemeral_gb": MAX_GB,
    "swap_mb": MAX_INT,
}
NAMES = ("id", "name")
SPECS = ("extra_specs", "properties")
WITHOUT_EFFECT = frozenset(
    {
        "OS-FLV-DISABLED:disabled",
        "access_project_ids",
        "description",
        "disabled",
        "is_disabled",
        "is_public",
        "links",
        "location",
        "original_name",
        "os-flavor-access:is_public",
        "rxtx_factor",
    }
)
"""What else nova and its clients tell of a flavor."""
LONGEST_VALUE = 4096
"""Characters of the value of an extra spec, as in the local API."""
MOST_FAULTS = 20
SHOWN = 80


def read_flavor(file: str) -> Flavor:
    """Return the flavor in the file; ``-`` is stdin.

    :raises RequestUnreadable: the file has no flavor; every fault is named with its key, up to
        :data:`MOST_FAULTS`.
    :raises NotJson, TooManyValues: the file is no JSON document, or too large a one.
    """
    given = read_request_file(file)
    if isinstance(given.get("flavor"), dict) and len(given) == 1:
        given = given["flavor"]
    if faults := [*islice(_faults(given), MOST_FAULTS)]:
        raise RequestUnreadable(
            f"{display_name(file)}: {'; '.join(faults)}",
            "write the flavor with: openstack flavor show -f json",
        )
    amounts = {
        name: int(next((given[key] for key in keys if not _is_missing(given.get(key))), 0))
        for name, keys in AMOUNTS.items()
    }
    specs: Mapping[str, object] = next((given[key] for key in SPECS if given.get(key)), {})
    identity, name = (str(given.get(key) or "") for key in NAMES)
    return Flavor(
        identity, name, **amounts, extra_specs={key: str(value) for key, value in specs.items()}
    )


def _faults(given: Mapping[str, Any]) -> Iterator[str]:
    known = [*NAMES, *SPECS, *(key for keys in AMOUNTS.values() for key in keys)]
    for key in given:
        if key not in known and key not in WITHOUT_EFFECT:
            alike = difflib.get_close_matches(key[:SHOWN], known, n=1, cutoff=0.7)
            meant = f": did you mean {alike[0]}?" if alike else ""
            yield f"{printable(key[:SHOWN])} is no key of a flavor{meant}"
    for key in NAMES:
        value = given.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            yield f"{key}: {_shown(value)} is no text"
    for name, keys in AMOUNTS.items():
        there = [key for key in keys if not _is_missing(given.get(key))]
        yield from (f"{key}: {fault}" for key in there if (fault := amount_fault(given[key], name)))
        if len({str(given[key]) for key in there}) > 1:
            yield f"{' and '.join(there)} name the same amount and differ"
    yield from _spec_faults(given)


def _spec_faults(given: Mapping[str, Any]) -> Iterator[str]:
    there = [key for key in SPECS if given.get(key) is not None and given[key] != ""]
    for key in there:
        if not isinstance(given[key], dict):
            yield f"{key}: {_shown(given[key])} is no object"
            continue
        for name, value in given[key].items():
            place = f"{key}: {printable(name[:SHOWN])}"
            if not isinstance(value, str | int | float):
                yield f"{place}: {_shown(value)} is no text"
            elif len(str(value)) > LONGEST_VALUE:
                yield f"{place}: a value of more than {LONGEST_VALUE} characters"
    if len(there) > 1 and given[there[0]] != given[there[1]]:
        yield f"{' and '.join(there)} name the same and differ"


def amount_fault(value: Any, name: str) -> str:
    """Return what is wrong with an amount of a flavor, in words; empty if nothing is. ``name``: as
    the local API calls the amount.
    """
    text = str(value).strip() if isinstance(value, str | int) else ""
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()):
        return f"{_shown(value)} is no whole number of at least 0"
    # Python spends long on converting a number with very many digits.
    if len(text) > len(str(MAX_INT)) or int(text) > LARGEST[name]:
        return f"{_shown(value)} is more than {LARGEST[name]}"
    return ""


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = printable(repr(value))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
