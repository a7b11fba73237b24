"""What differs between two inventories, in words for a line of a log or a report."""

from collections.abc import Iterator

from agent.model.inventory import DEFAULTS, FIELDS, Inventories, Record

FIELD_TITLES = {"allocation_ratio": "ratio"}


def inventory_changes(old: Inventories, new: Inventories, arrow: str = "->") -> Iterator[str]:
    """One text a class that comes, goes or changes: ``+VGPU 4``, ``-DISK_GB``, ``VCPU total 16 -> 18``."""
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
    rest = [f"{_title(field)} {record[field]}" for field in FIELDS if record.get(field) not in usual.get(field, {record.get(field)})]
    return f"{record['total']}" + (f" ({', '.join(rest)})" if rest else "")


def _field_changes(old: Record, new: Record, arrow: str) -> Iterator[str]:
    for field in FIELDS:
        if field in new and old.get(field) != new[field]:
            yield f"{_title(field)} {old.get(field, 'unset')} {arrow} {new[field]}"


def _title(field: str) -> str:
    return FIELD_TITLES.get(field, field)
