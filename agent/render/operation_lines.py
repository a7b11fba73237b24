"""Operations as lines: a sign, the change, the reason, and the outcome."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.text import Text

from agent.model.inventory import Resources, inventory_changes
from agent.model.names import ProviderUuid, printable
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
from agent.render.look import Look, Signs, escape_text, wrap_line

COLOURS = {"+": "green", "~": "yellow", "-": "red"}
RESHAPE_COLOUR = "magenta"

Names = Mapping[str, str]


def operation_lines(node: NodeReport, look: Look) -> list[Text]:
    """Return one line for each operation, in the order sent. On a terminal, long lines are wrapped
    and indented.
    """
    names = _names(node)
    return [
        line
        for outcome in node.outcomes
        for line in wrap_line(_line(outcome, names, node.provisional, look.signs), look)
    ]


def _names(node: NodeReport) -> Names:
    references = (outcome.operation.provider for outcome in node.outcomes)
    return {
        **{reference.uuid: reference.name for reference in references if reference},
        **{provider.uuid: provider.name for provider in node.tree.providers()},
    }


def _line(outcome: Outcome, names: Names, provisional: bool, signs: Signs) -> Text:
    operation = outcome.operation
    sign, subject, detail = TELLERS[type(operation)](operation, names, signs)
    colour = COLOURS.get(sign, RESHAPE_COLOUR)
    line = Text.assemble((f"{sign} ", f"bold {colour}"), escape_text(subject, "bold"))
    if detail:
        line.append(f" {printable(detail)}")
    if isinstance(operation, CreateProvider) and not provisional:
        line.append(f" {printable(operation.provider.uuid)}", "dim")
    if operation.reason:
        line.append(f" {signs.reason} {printable(operation.reason)}", "dim")
    if outcome.status == "failed":
        line.append(f" {signs.bad} failed", "bold red")
        line.append(f": {printable(outcome.error)}" if outcome.error else "", "red")
    elif outcome.status == "skipped":
        line.append(" (skipped)", "dim")
    return line


# --- one function for each kind of operation: its sign, its subject, the change -------------------

Line = tuple[str, str, str]


def _create(operation: CreateProvider, names: Names, _: Signs) -> Line:
    return (
        "+",
        operation.provider.name,
        f"provider below {_called(operation.parent, names)}"
        if operation.parent
        else "root provider",
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
