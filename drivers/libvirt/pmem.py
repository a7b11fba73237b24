"""Persistent memory for guests: the namespaces that the operator names, by label, and whether the
host has them.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.errors import ConfigError, ConfigErrors, DriverError
from agent.model.names import printable
from agent.model.unit_record import AssignableUnit
from drivers.libvirt.disk import output_of

OPTION = "[libvirt] pmem_namespaces"
PREFIX = "CUSTOM_PMEM_NAMESPACE_"
FORM = "write it as label:ns0|ns1,label:ns2, labels of letters, digits and _"

# As long as the name of a resource class allows.
_LABEL = re.compile(rf"[A-Za-z0-9_]{{1,{255 - len(PREFIX)}}}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,63}")


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace."""

    name: str
    """Its name in ``ndctl``."""
    label: str
    """The operator's label, which becomes the resource class."""


def configured_namespaces(entries: Sequence[str]) -> tuple[Namespace, ...]:
    """Return the namespaces of the option.

    :raises ConfigErrors: an entry is malformed, or a label or namespace is given twice.
    """
    found: list[Namespace] = []
    errors: list[ConfigError] = []
    labels = Counter(entry.partition(":")[0].strip().upper() for entry in entries)
    for entry in entries:
        label, colon, names = (part.strip() for part in entry.partition(":"))
        namespaces = [name.strip() for name in names.split("|")]
        if (
            not colon
            or not _LABEL.fullmatch(label)
            or not all(map(_NAMESPACE.fullmatch, namespaces))
        ):
            errors.append(
                ConfigError(printable(f"{OPTION}: {entry!r} is no label with its namespaces"), FORM)
            )
            continue
        found += [Namespace(name, label) for name in namespaces]
    errors += [
        ConfigError(
            printable(f"{OPTION}: the label {label} is given {count} times"), "give it once"
        )
        for label, count in labels.items()
        if count > 1
    ]
    names_given = Counter(namespace.name for namespace in found)
    errors += [
        ConfigError(
            printable(f"{OPTION}: the namespace {name} is given {count} times"), "give it one label"
        )
        for name, count in names_given.items()
        if count > 1
    ]
    if errors:
        raise ConfigErrors(errors)
    return tuple(found)


def read_units(namespaces: Sequence[Namespace]) -> tuple[AssignableUnit, ...]:
    """Return the namespaces as assignable units. To be called in a worker.

    :raises ConfigErrors: the host does not have them all.
    :raises DriverError: the host cannot be asked.
    """
    present = _present_namespaces(output_of(["ndctl", "list", "--namespaces"]))
    absent = [namespace.name for namespace in namespaces if namespace.name not in present]
    if absent:
        what = f"the host has {', '.join(sorted(present)) or 'none'} (ndctl list --namespaces)"
        raise ConfigErrors(
            [
                ConfigError(
                    printable(f"{OPTION}: this host has no namespace {name}"), printable(what)
                )
                for name in absent
            ]
        )
    return tuple(
        AssignableUnit(
            PREFIX + namespace.label.upper(),
            namespace.name,
            metadata={"label": namespace.label, **present[namespace.name]},
        )
        for namespace in namespaces
    )


def _present_namespaces(text: str) -> Mapping[str, Mapping[str, str]]:
    """Return what ``ndctl`` lists: by name, the size in bytes and the device of each.

    :raises DriverError: the list cannot be parsed.
    """
    try:
        listed = json.loads(text or "[]")
        # A single namespace may come without the list around it.
        entries = [listed] if isinstance(listed, dict) else listed
        found = {}
        for entry in entries:
            device = (
                entry.get("daxregion", {}).get("devices", [{}])[0].get("chardev")
                or entry.get("chardev")
                or entry.get("blockdev")
                or entry["dev"]
            )
            # A namespace without a name of its own has the kernel's.
            found[str(entry.get("name") or entry["dev"])] = {
                "size": str(entry["size"]),
                "device": str(device),
            }
        return found
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise DriverError(
            printable(f"ndctl lists namespaces in a form that is not understood: {text[:80]!r}")
        ) from error
