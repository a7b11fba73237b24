"""Operations as lines: a sign, the change, the reason, and the outcome."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agent.model.inventory import Resources, inventory_changes
from agent.model.names import ProviderUuid, number_of, printable
from agent.model.operation import (
    CreateProvider,
    DeleteAllocations,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTrait,
    Operation,
    RenameProvider,
    ReparentProvider,
    Reshape,
    SetAggregates,
    SetAllocations,
    SetInventory,
    SetTraits,
)
from agent.model.report import NodeReport, Outcome
from agent.render.look import Look, Signs, Text, escape_text, wrap_line
from agent.render.tree_lines import SHOWN_AT_MOST

COLOURS = {"+": "green", "~": "yellow", "-": "red"}
RESHAPE_COLOUR = "magenta"

Names = Mapping[str, str]


def operation_lines(node: NodeReport, look: Look) -> list[Text]:
    """Return one line for each operation, in the order sent; what a provider was created with is
    told with its creation. On a terminal, long lines are wrapped and indented.
    """
    names, contents = _names(node), _contents_of_created(node.outcomes)
    told = {id(outcome) for found in contents.values() for outcome in found}
    return [
        line
        for outcome in node.outcomes
        if id(outcome) not in told
        for line in wrap_line(_line(outcome, contents.get(id(outcome), ()), names, look), look)
    ]


def _contents_of_created(outcomes: Sequence[Outcome]) -> Mapping[int, Sequence[Outcome]]:
    """Return the outcomes that are told with the creation of their provider, by the id of the
    creation's outcome: those that ended as it did.
    """
    creations = {
        outcome.operation.provider.uuid: outcome
        for outcome in outcomes
        if isinstance(outcome.operation, CreateProvider)
    }
    found: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        operation = outcome.operation
        if isinstance(operation, SetInventory | SetTraits | SetAggregates):
            creation = creations.get(operation.provider.uuid)
            if creation is not None and outcome.status == creation.status and not outcome.error:
                found.setdefault(id(creation), []).append(outcome)
    return found


def _names(node: NodeReport) -> Names:
    references = (outcome.operation.provider for outcome in node.outcomes)
    return {
        **{reference.uuid: reference.name for reference in references if reference},
        **{provider.uuid: provider.name for provider in node.tree.providers()},
    }


def _line(outcome: Outcome, contents: Sequence[Outcome], names: Names, look: Look) -> Text:
    operation, signs = outcome.operation, look.signs
    sign, subject, detail = TELLERS[type(operation)](operation, names, signs)
    if contents:
        detail += f", with {_told_contents(contents, look)}"
    colour = COLOURS.get(sign, RESHAPE_COLOUR)
    line = Text.assemble((f"{sign} ", f"bold {colour}"), escape_text(subject, "bold"))
    if detail:
        line.append(f" {printable(detail)}")
    if operation.reason:
        line.append(f" {signs.reason} {printable(operation.reason)}", "dim")
    if outcome.status == "failed":
        line.append(f" {signs.bad} failed", "bold red")
        line.append(f": {printable(outcome.error)}" if outcome.error else "", "red")
    elif outcome.status == "skipped":
        line.append(" (skipped)", "dim")
    return line


def _told_contents(contents: Iterable[Outcome], look: Look) -> str:
    """Return what a provider was created with: ``PCPU 6, HW_NUMA_ROOT``. Traits may be counted."""
    parts: list[str] = []
    for operation in sorted(
        (outcome.operation for outcome in contents), key=lambda one: KINDS.index(type(one))
    ):
        if isinstance(operation, SetInventory):
            parts += (text.removeprefix("+") for text in inventory_changes({}, operation.new))
        elif isinstance(operation, SetTraits):
            traits = sorted(operation.new)
            few = look.wide or len(traits) <= SHOWN_AT_MOST
            parts += traits if few else [number_of(len(traits), "trait")]
        elif isinstance(operation, SetAggregates):
            parts += (f"aggregate {uuid}" for uuid in sorted(operation.new))
    return ", ".join(parts)


KINDS = (SetInventory, SetTraits, SetAggregates)
"""In the order in which they are told."""


# --- one function for each kind of operation: its sign, its subject, the change -------------------

Line = tuple[str, str, str]


def _create(operation: CreateProvider, names: Names, _: Signs) -> Line:
    return (
        "+",
        operation.provider.name,
        f"created below {_called(operation.parent, names)}" if operation.parent else "created",
    )


def _delete(operation: DeleteProvider, _: Names, __: Signs) -> Line:
    classes = ", ".join(sorted(operation.inventory))
    return "-", operation.provider.name, f"provider with {classes}" if classes else "provider"


def _rename(operation: RenameProvider, _: Names, signs: Signs) -> Line:
    return (
        "~",
        operation.provider.name,
        f"name: {operation.old_name} {signs.change} {operation.provider.name}",
    )


def _reparent(operation: ReparentProvider, names: Names, signs: Signs) -> Line:
    before, after = (_called(parent, names) for parent in (operation.old_parent, operation.parent))
    return "~", operation.provider.name, f"parent: {before} {signs.change} {after}"


def _inventory(operation: SetInventory, _: Names, signs: Signs) -> Line:
    return (
        "~",
        operation.provider.name,
        "inventory: "
        + _join_changes(inventory_changes(operation.old, operation.new, signs.change)),
    )


def _traits(operation: SetTraits, _: Names, __: Signs) -> Line:
    return "~", operation.provider.name, "traits: " + _set_changes(operation.old, operation.new)


def _aggregates(operation: SetAggregates, _: Names, __: Signs) -> Line:
    return "~", operation.provider.name, "aggregates: " + _set_changes(operation.old, operation.new)


def _resource_class(operation: EnsureResourceClass, _: Names, __: Signs) -> Line:
    return "+", operation.name, "resource class"


def _trait(operation: EnsureTrait, _: Names, __: Signs) -> Line:
    return "+", operation.name, "trait"


def _reshape(operation: Reshape, names: Names, signs: Signs) -> Line:
    before = operation.old_inventories
    changes = (
        (
            f"{_called(uuid, names)} "
            f"({_join_changes(inventory_changes(before.get(uuid, {}), new, signs.change))})"
        )
        for uuid, new in operation.inventories.items()
    )
    moved = len(operation.allocations)
    return (
        signs.reshape,
        f"reshape with {moved} consumer" + ("" if moved == 1 else "s"),
        "of " + ", ".join(changes),
    )


def _delete_allocations(operation: DeleteAllocations, names: Names, _: Signs) -> Line:
    return "-", operation.old.consumer, "allocations: " + _held(operation.old.resources, names)


def _allocations(operation: SetAllocations, names: Names, signs: Signs) -> Line:
    before, after = (
        _held(resources, names) for resources in (operation.old.resources, operation.new)
    )
    return "~", operation.old.consumer, f"allocations: {before} {signs.change} {after}"


TELLERS: Mapping[type[Operation], Callable[[Any, Names, Signs], Line]] = {
    CreateProvider: _create,
    DeleteProvider: _delete,
    RenameProvider: _rename,
    ReparentProvider: _reparent,
    SetInventory: _inventory,
    SetTraits: _traits,
    SetAggregates: _aggregates,
    EnsureResourceClass: _resource_class,
    EnsureTrait: _trait,
    Reshape: _reshape,
    DeleteAllocations: _delete_allocations,
    SetAllocations: _allocations,
}


def _called(uuid: str | None, names: Names) -> str:
    return "none" if uuid is None else names.get(uuid, uuid)


def _held(resources: Mapping[ProviderUuid, Resources], names: Names) -> str:
    """Return ``MEMORY_MB 2048, VCPU 1 of node-1; VGPU 1 of node-1_NUMA0``."""
    return "; ".join(
        (
            f"{', '.join(f'{name} {amount}' for name, amount in sorted(amounts.items()))} of "
            f"{_called(uuid, names)}"
        )
        for uuid, amounts in resources.items()
    )


def _join_changes(parts: Iterable[str]) -> str:
    return "; ".join(parts) or "written again"


def _set_changes(old: frozenset[str], new: frozenset[str]) -> str:
    changes = [f"+{name}" for name in sorted(new - old)] + [
        f"-{name}" for name in sorted(old - new)
    ]
    return " ".join(changes) or "written again"
