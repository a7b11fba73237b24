"""Lists of CPUs and cells in libvirt's XML, such as ``0-3,8``, bounded before they are made."""

import re

from agent.model.cpu_list import parse_cpu_list
from drivers.libvirt.xml import fault

# libvirt knows no CPU with this number or above (VIR_DOMAIN_CPUMASK_LEN).
MOST = 16384
# All of them, one by one.
LONGEST = MOST * 6
# The lists of the largest guests and hosts come to a tenth of it; a document that was made to harm could come to billions.
MOST_IN_ALL = 1 << 20

_SPAN = re.compile(r"([0-9]+)(?:\s*-\s*([0-9]+))?")


class NumberLists:
    """The lists of one document. One that comes again is the same set."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[int]] = {}
        self._left = MOST_IN_ALL

    def read(self, text: str, what: str) -> frozenset[int]:
        """The numbers of a list that is not empty. ``what`` names it in errors.

        :raises DriverError: it is no such list, is empty, has a number that no CPU has, or there were too many before it.
        """
        if text not in self._known:
            try:
                self._known[text] = self._parsed(text.strip())
            except ValueError as error:
                raise fault(what, str(error)) from error
        return self._known[text]

    def one(self, text: str | None, what: str) -> int | None:
        """The only number of a list; None if it has several, or there is no list. Raises as :meth:`read`."""
        return only_one(self.read(text, what)) if text else None

    def _parsed(self, text: str) -> frozenset[int]:
        if len(text) > LONGEST:
            raise ValueError(f"a list of {len(text)} characters is too long")
        spans = _SPAN.findall(text)
        if any(len(number) > 5 or int(number or 0) >= MOST for span in spans for number in span):
            raise ValueError(f"{text[:40]!r} names more than libvirt knows, {MOST}")
        self._left -= sum(max(int(last or first) - int(first), 0) + 1 for first, last in spans)
        if self._left < 0:
            raise ValueError(f"the lists name more than {MOST_IN_ALL} in all")
        numbers = parse_cpu_list(text)
        if not numbers:
            raise ValueError("the list is empty")
        return numbers


def only_one(numbers: frozenset[int]) -> int | None:
    """The number, if there is just one."""
    return next(iter(numbers)) if len(numbers) == 1 else None
