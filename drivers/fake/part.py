"""A part of a host file that is being read: its data, its place, and the errors found so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.errors import ConfigError
from agent.model.cpu_list import parse_cpu_list
from agent.yaml_files.document import Document, Where, shown


@dataclass(frozen=True, slots=True)
class Part:
    """The data at one place of a host file. All parts of a document share one list of errors."""

    document: Document
    where: Where
    data: Any
    errors: list[ConfigError]
    broken: frozenset[int] = frozenset()
    """Indexes of list items with errors of structure, which are noted already; the other items are
    still checked.
    """

    def items(self) -> Sequence["Part"]:
        """Return the items of a list as parts, without the broken ones."""
        return [self.at(index) for index in range(len(self.data)) if index not in self.broken]

    @property
    def whole(self) -> bool:
        """Whether no item of a list is left out, so that what is not in it is missing."""
        return not self.broken

    def wrong(self, steps: Where, what: str, remedy: str) -> None:
        """Note an error about the value ``steps`` below this part."""
        self.errors.append(self.document.error((*self.where, *steps), what, remedy))

    def at(self, *steps: str | int) -> "Part":
        """Return the part ``steps`` below this one, which must exist."""
        data = self.data
        for step in steps:
            data = data[step]
        return Part(self.document, (*self.where, *steps), data, self.errors)

    def cpus(self, *steps: str | int) -> frozenset[int]:
        """Return the CPU list at ``steps``; empty, with an error noted, if it is none."""
        text = self.at(*steps).data
        try:
            return parse_cpu_list(text)
        except ValueError as error:
            self.wrong(steps, f"is {shown(text)}: {error}", "write a CPU list such as '0-3,8'")
            return frozenset()
