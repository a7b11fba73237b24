"""Inventory records: comparison, completion, validation and the texts of their changes;
and allocations.

A *record* is a mapping of some or all of ``FIELDS`` to numbers; *inventories* map resource class
names to records. The limits are those of Placement; the comparison is the one that drivers written
for nova rely on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from agent.model.names import ConsumerUuid, ProviderUuid, is_token

Number = int | float
Record = Mapping[str, Number]
Inventories = Mapping[str, Record]

MAX_INT = 2147483647
MAX_RATIO = 3.40282e38
FIELDS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
DEFAULTS: Record = {
    "reserved": 0,
    "min_unit": 1,
    "max_unit": MAX_INT,
    "step_size": 1,
    "allocation_ratio": 1.0,
}


def copied(inventories: Inventories | None) -> dict[str, dict[str, Number]]:
    """Return a copy that can be edited without changing the original; ``None`` means empty."""
    return {name: dict(record) for name, record in (inventories or {}).items()}


def differs(current: Record, proposed: Record) -> bool:
    """Return whether writing ``proposed`` over ``current`` changes anything.

    A field that ``current`` has and ``proposed`` lacks is ignored: a driver that gives only
    ``total`` does not unset the ratio. The relation is therefore not symmetric.
    """
    return any(field not in current or current[field] != value for field, value in proposed.items())


def changed(current: Inventories, proposed: Inventories) -> bool:
    """Return whether ``proposed`` differs from ``current`` in its classes or in a field that it
    gives.
    """
    return current.keys() != proposed.keys() or any(
        differs(current[name], record) for name, record in proposed.items()
    )


def completed(record: Record, present: Record | None = None) -> dict[str, Number]:
    """Return ``record`` with all six fields: missing ones are taken from ``present`` (the server's
    record), then from the defaults.

    A PUT without a field would make the server reset it. A field that is none of the six stays in
    the record, so that :func:`problems` names it.
    """
    full = {**DEFAULTS, **(present or {}), **record}
    return {field: full[field] for field in (*FIELDS, *full) if field in full}


def without_empty(inventories: Inventories) -> dict[str, Record]:
    """Return the classes that can be sent: without those of total 0, because Placement refuses
    that.
    """
    return {name: record for name, record in inventories.items() if record.get("total") != 0}


def capacity(record: Record) -> int:
    """Return how much of a class can be allocated in all."""
    return int((record["total"] - record.get("reserved", 0)) * record.get("allocation_ratio", 1.0))


def problems(resource_class: str, record: Record) -> Iterator[str]:
    """Yield one sentence for everything that makes a complete record unusable.

    Stricter than the server, which accepts ``min_unit > max_unit`` (the class could never be
    allocated) and, in a reshape, ``reserved > total``.
    """
    if not is_token(resource_class):
        yield f"resource class {resource_class!r} is not made of A-Z, 0-9 and _"
    unknown = sorted(set(record) - set(FIELDS))
    if unknown:
        yield f"{resource_class}: unknown field {', '.join(unknown)}"
    wrong = [*_wrong_amounts(record)]
    yield from (f"{resource_class}: {text}" for text in wrong)
    if wrong:
        return
    if record["reserved"] > record["total"]:
        yield f"{resource_class}: reserved {record['reserved']} is above total {record['total']}"
    if record["min_unit"] > record["max_unit"]:
        yield (
            f"{resource_class}: min_unit {record['min_unit']} is above max_unit "
            f"{record['max_unit']}"
        )
    if record["step_size"] > record["max_unit"]:
        yield (
            f"{resource_class}: step_size {record['step_size']} is above max_unit "
            f"{record['max_unit']}"
        )


def _wrong_amounts(record: Record) -> Iterator[str]:
    for name, least in (
        ("total", 1),
        ("reserved", 0),
        ("min_unit", 1),
        ("max_unit", 1),
        ("step_size", 1),
    ):
        value = record.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_INT:
            yield f"{name} is {value!r}, not a whole number from {least} to {MAX_INT}"
    ratio = record.get("allocation_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= MAX_RATIO:
        yield f"allocation_ratio is {ratio!r}, not a number from 0 to {MAX_RATIO:g}"


FIELD_TITLES = {"allocation_ratio": "ratio"}


def inventory_changes(old: Inventories, new: Inventories, arrow: str = "->") -> Iterator[str]:
    """Yield one text for each class that is added, removed or changed: ``+VGPU 4``, ``-DISK_GB``,
    ``VCPU total 16 -> 18``.
    """
    for name in sorted(new.keys() | old.keys()):
        if name not in new:
            yield f"-{name}"
        elif name not in old:
            yield f"+{name} {_new_record(new[name])}"
        elif changes := list(_field_changes(old[name], new[name], arrow)):
            yield f"{name} {', '.join(changes)}"


def _new_record(record: Record) -> str:
    usual = {field: {value} for field, value in DEFAULTS.items()}
    usual["max_unit"].add(record["total"])
    rest = [
        f"{_title(field)} {record[field]}"
        for field in FIELDS
        if record.get(field) not in usual.get(field, {record.get(field)})
    ]
    return f"{record['total']}" + (f" ({', '.join(rest)})" if rest else "")


def _field_changes(old: Record, new: Record, arrow: str) -> Iterator[str]:
    for name in FIELDS:
        if name in new and old.get(name) != new[name]:
            yield f"{_title(name)} {old.get(name, 'unset')} {arrow} {new[name]}"


def _title(field: str) -> str:
    return FIELD_TITLES.get(field, field)


Resources = Mapping[str, int]
# Resources that are held or requested, by provider.
Holdings = Mapping[ProviderUuid, Resources]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The whole allocation of one consumer, on all providers, also of other hosts."""

    consumer: ConsumerUuid
    resources: Holdings
    project_id: str
    user_id: str
    generation: int | None
    """The consumer's; ``None`` when Placement does not know the consumer."""
    provider_generations: Mapping[ProviderUuid, int] = field(default_factory=dict)
    """The generations of the providers when the allocation was read, for drivers."""
    consumer_type: str | None = None
    """``None`` if there is none or it was not read."""
    written_at: float | None = field(default=None, compare=False)
    """Seconds since the epoch; ``None`` if Placement does not say."""

    def as_driver_dict(self) -> dict[str, Any]:
        """Return the shape that ``update_provider_tree`` receives and edits in place."""
        body = self.as_body()
        for uuid, entry in body["allocations"].items():
            if uuid in self.provider_generations:
                entry["generation"] = self.provider_generations[uuid]
        return body

    def as_body(self) -> dict[str, Any]:
        """Return the shape that Placement takes in a write."""
        return {
            "allocations": {
                uuid: {"resources": dict(resources)} for uuid, resources in self.resources.items()
            },
            "project_id": self.project_id,
            "user_id": self.user_id,
            "consumer_generation": self.generation,
            **({"consumer_type": self.consumer_type} if self.consumer_type else {}),
        }

    def edited(self, record: Mapping[str, Any]) -> Self:
        """Return the allocation with the resources of an edited driver dict; owner and generation
        stay those of the server.

        A provider without resources is left out, because Placement refuses such an entry.
        """
        resources = {
            ProviderUuid(uuid): dict(entry["resources"])
            for uuid, entry in record["allocations"].items()
            if entry["resources"]
        }
        return type(self)(self.consumer, resources, self.project_id, self.user_id, self.generation)
