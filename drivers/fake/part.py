"""A part of a host file that is being read: its data, where it stands, and the errors
found so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.errors import ConfigError
from agent.model.cpu_list import parse_cpu_list
from agent.yaml_files.document import Document, Where, shown


@dataclass(frozen=True, slots=True)
class Part:
    """``data`` is what stands at ``where``. All parts of a document share one list of ``errors``.

    ``broken``: the items of a list whose structure is wrong, which is known already; the others are
    still checked.
    """

    document: Document
    where: Where
    data: Any
    errors: list[ConfigError]
    broken: frozenset[int] = frozenset()

    def items(self) -> Sequence["Part"]:
        """The parts of a list, but the broken ones."""
        return [self.at(index) for index in range(len(self.data)) if index not in self.broken]

    @property
    def whole(self) -> bool:
        """Whether nothing of a list is passed over, so that what is not there is missing."""
        return not self.broken

    def wrong(self, steps: Where, what: str, remedy: str) -> None:
        """Note an error about the value ``steps`` below this part."""
        self.errors.append(self.document.error((*self.where, *steps), what, remedy))

    def at(self, *steps: str | int) -> "Part":
        """The part ``steps`` below this one, which is there."""
        data = self.data
        for step in steps:
            data = data[step]
        return Part(self.document, (*self.where, *steps), data, self.errors)

    def cpus(self, *steps: str | int) -> frozenset[int]:
        """The CPU list at ``steps``; empty, with an error noted, if it is none."""
        text = self.at(*steps).data
        try:
            return parse_cpu_list(text)
        except ValueError as error:
            self.wrong(steps, f"is {shown(text)}: {error}", "write a CPU list such as '0-3,8'")
            return frozenset()
