"""The rows of instances."""

from typing import Any

from sqlalchemy import Row

from agent.model.flavor import Flavor
from agent.model.instance import TASK_STATES, VM_STATES, Instance
from agent.store.record_schema import INSTANCE
from agent.store.record_texts import flavor_of, flavor_text, one_of, properties_of
from agent.store.texts import mapping_text
from agent.store.versioned import VersionedTable

TRANSLATED = ("flavor", "old_flavor", "new_flavor", "image_properties", "vm_state", "task_state")
# Of the others, columns and fields are the same.
INSTANCE_COLUMNS = tuple(column.name for column in INSTANCE.c if column.name not in (*TRANSLATED, "version"))


def _instance_row(instance: Instance) -> dict[str, Any]:
    return {
        **{name: getattr(instance, name) for name in INSTANCE_COLUMNS},
        "flavor": flavor_text(instance.flavor),
        "old_flavor": flavor_text(instance.old_flavor) if instance.old_flavor else None,
        "new_flavor": flavor_text(instance.new_flavor) if instance.new_flavor else None,
        "image_properties": mapping_text(instance.image_properties),
        "vm_state": instance.vm_state,
        "task_state": instance.task_state,
    }


def _instance_record(row: Row[Any]) -> Instance:
    return Instance(
        **{name: row._mapping[name] for name in INSTANCE_COLUMNS},
        flavor=flavor_of(row.flavor),
        old_flavor=_optional(row.old_flavor),
        new_flavor=_optional(row.new_flavor),
        image_properties=properties_of(row.image_properties),
        vm_state=one_of(row.vm_state, VM_STATES),
        task_state=None if row.task_state is None else one_of(row.task_state, TASK_STATES),
        version=row.version,
    )


def _optional(text: str | None) -> Flavor | None:
    return None if text is None else flavor_of(text)


INSTANCES = VersionedTable(INSTANCE, _instance_row, _instance_record)
