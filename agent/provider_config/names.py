"""Which resource classes and traits an operator may add: custom ones that the agent does not make itself."""

from collections.abc import Iterable, Iterator

from agent.model.names import is_custom

# What translations of the host's own devices are called: two owners of one name would undo each other's work.
RESERVED_CLASSES = ("CUSTOM_PCI_", "CUSTOM_PMEM_NAMESPACE_")
# By these an agent finds its nodes again.
RESERVED_TRAITS = ("CUSTOM_COMPUTE_NODE_AGENT_",)

Told = tuple[str, str]
"""What is wrong, and the remedy."""


def class_problems(names: Iterable[str]) -> Iterator[Told]:
    """Everything wrong with resource classes that are well formed."""
    yield from _problems(sorted(set(names)), "resource classes", RESERVED_CLASSES)


def trait_problems(names: Iterable[str]) -> Iterator[Told]:
    """Everything wrong with traits that are well formed."""
    yield from _problems(sorted(set(names)), "traits", RESERVED_TRAITS)


def _problems(names: list[str], kind: str, reserved: tuple[str, ...]) -> Iterator[Told]:
    empty = "CUSTOM_"
    standard = [name for name in names if not is_custom(name) and name != empty]
    if standard:
        yield f"not custom {kind}: {', '.join(standard)}", f"only {kind} whose names begin with CUSTOM_ can be added; others are the driver's"
    if empty in names:
        yield f"{empty} alone is no name", "let a name follow it"
    taken = [name for name in names if name.startswith(reserved)]
    if taken:
        yield f"{kind} that only the agent itself gives: {', '.join(taken)}", "choose another name"
