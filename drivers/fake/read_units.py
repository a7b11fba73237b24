"""The assignable units of a host file."""

from collections.abc import Collection

from agent.model.assignable_unit import AssignableUnit
from agent.yaml_files.document import shown
from drivers.fake.entry import NODE, named
from drivers.fake.part import Part

# Classes that the agent makes of other sections.
COUNTED = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})


def read_units(part: Part, node: str, providers: Collection[str] | None) -> tuple[AssignableUnit, ...]:
    """The units of the node called ``node``, in the order of the file.

    ``providers``: the names of those that may count units, ``None`` if they are not known.
    """
    seen: set[tuple[str, str, str]] = set()
    units = []
    for item in part.items():
        data = item.data
        provider, resource_class, identifier = data.get("provider", NODE), data["resource_class"], data["identifier"]
        if resource_class in COUNTED:
            item.wrong(("resource_class",), f"{resource_class} is no class of units: the agent counts it by itself", "name another class, such as CUSTOM_X")
        if providers is not None and (name := named(provider, node)) not in providers:
            item.wrong(("provider",), f"there is no provider {shown(name)}", "describe it as a provider too, or name the node or a cell")
        if (provider, resource_class, identifier) in seen:
            item.wrong(("identifier",), f"the unit {shown(identifier)} of {resource_class} is here twice", "give every unit its own identifier")
        seen.add((provider, resource_class, identifier))
        units.append(AssignableUnit(resource_class, identifier, provider.removeprefix(NODE) or None, data.get("metadata", {})))
    return tuple(units)
