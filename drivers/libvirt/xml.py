"""Parsing of XML from libvirtd, in which other programs have a say: it may be cut off, unescaped,
huge or deep.
"""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar
from xml.etree import ElementTree

from agent.errors import DriverError
from agent.model.devices import PciAddress
from agent.model.facts import parse_cpu_list
from agent.model.instance import MOST_MEMORY_MIB
from agent.model.names import printable

# libvirt's own limit of a text in an answer, in characters (REMOTE_STRING_MAX).
LARGEST = 4 * 1024 * 1024
# In elements; what libvirt sends is about twelve deep.
DEEPEST = 64

# The largest amount of memory, in KiB, and so of pages, of which none has less than one KiB.
MOST_KIB = MOST_MEMORY_MIB * 1024
# The largest of all other numbers: libvirt's are of 32 bits, and so are Placement's.
MOST_NUMBER = 2**31 - 1

_INTEGER = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,12}|[0-9]{1,15}")

Element = ElementTree.Element
Item = TypeVar("Item")
Key = TypeVar("Key")
Value = TypeVar("Value")


def fault(what: str, why: str) -> DriverError:
    """Return an error of one line that names what was read."""
    return DriverError(printable(f"{what}: {why}"))


def read_each(
    items: Iterable[Item],
    read: Callable[[Item], Value],
    key: Callable[[Value], Key],
    faults: list[str],
    twice: Callable[[Item, Key], DriverError],
) -> dict[Key, Value]:
    """Return what ``read`` makes of the items, by key. An item that cannot be read is added to the
    ``faults``, as is one with the key of another, by the error that ``twice`` returns; the others
    stay.
    """
    found: dict[Key, Value] = {}
    for item in items:
        try:
            value = read(item)
            if key(value) in found:
                raise twice(item, key(value))
            found[key(value)] = value
        except DriverError as error:
            faults.append(error.message)
    return found


def parse(text: str, what: str, root: str) -> Element:
    """Parse ``text``, whose root element has to be ``root``. ``what`` names the text in errors.

    :raises DriverError: it is no well-formed XML, is another element, or is too large or too deep.
    """
    if len(text) > LARGEST:
        raise fault(what, f"its XML has {len(text)} characters, more than {LARGEST}")
    try:
        found = ElementTree.fromstring(text)  # noqa: S314 -- libvirtd runs as root, and expat bounds entities # nosec B314
    except (ElementTree.ParseError, ValueError) as error:
        raise fault(what, f"malformed XML: {error}") from error
    if found.tag != root:
        raise fault(what, f"its XML is {_shown(found.tag)}, not {root!r}")
    _check_depth(found, what)
    return found


def _check_depth(root: Element, what: str) -> None:
    level = [root]
    for _ in range(DEEPEST):
        level = [child for element in level for child in element]
        if not level:
            return
    raise fault(what, f"its XML is more than {DEEPEST} elements deep")


def child(parent: Element, path: str, what: str) -> Element:
    """Return the first element at ``path``.

    :raises DriverError: there is none.
    """
    found = parent.find(path)
    if found is None:
        raise fault(what, f"no <{path}> in <{parent.tag}>")
    return found


def text_of(parent: Element, path: str) -> str:
    """Return the text of the first element at ``path``, stripped; empty if there is none."""
    return (parent.findtext(path) or "").strip()


def integer(text: str | None, what: str) -> int:
    """Return a decimal number as libvirt writes it.

    :raises DriverError: it is none.
    """
    if text is None or _INTEGER.fullmatch(text.strip()) is None:
        raise fault(what, f"{_shown(text)} is not a number")
    return int(text)


def natural(text: str | None, what: str, most: int = MOST_NUMBER) -> int:
    """Return a number as :func:`integer` does, that is not negative and at most ``most``.

    :raises DriverError: it is none, negative, or more.
    """
    number = integer(text, what)
    if number < 0:
        raise fault(what, f"{number} is negative")
    if number > most:
        raise fault(what, f"{number} is more than {most}")
    return number


def number(text: str | None, what: str, most: int) -> int:
    """Return a part of an address: decimal, or hexadecimal after ``0x``, at most ``most``.

    :raises DriverError: it is none, or more.
    """
    if text is None or _NUMBER.fullmatch(text.strip()) is None:
        raise fault(what, f"{_shown(text)} is not a number")
    value = int(text, 16) if text.strip().startswith("0x") else int(text)
    if value > most:
        raise fault(what, f"{text.strip()} is above {most:#x}")
    return value


def _shown(text: str | None) -> str:
    return "nothing" if text is None else repr(text if len(text) <= 40 else f"{text[:40]}...")


_NAME = re.compile(r"pci_([0-9a-f]{4,8})_([0-9a-f]{2})_([0-9a-f]{2})_([0-7])")


def from_name(name: str) -> PciAddress | None:
    """Return the address in the name of a node device; None if the name is not that of a PCI
    function, or is of another form.
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match[3], 16) > 0x1F:
        return None
    return PciAddress(*(int(part, 16) for part in match.groups()))


def pci_address(part: Callable[[str], str | None], what: str) -> PciAddress:
    """Return the address whose parts are the attributes of an ``<address>`` (its ``get``), or the
    elements of a ``pci`` capability (its ``findtext``).

    :raises DriverError: a part is missing, no number, or too large.
    """
    return PciAddress(
        number(part("domain"), f"{what}: domain", 0xFFFFFFFF),
        number(part("bus"), f"{what}: bus", 0xFF),
        number(part("slot"), f"{what}: slot", 0x1F),
        number(part("function"), f"{what}: function", 0x7),
    )


_BYTES: dict[str, int] = {"b": 1, "bytes": 1} | {
    unit: base**power
    for power, letter in enumerate("KMGT", start=1)
    for unit, base in (
        (letter, 1024),
        (letter.lower(), 1024),
        (f"{letter}iB", 1024),
        (f"{letter}B", 1000),
    )
}


def kib_of(text: str | None, unit: str | None, what: str) -> int:
    """Return the amount in KiB, rounded down; without a unit it is in KiB.

    :raises DriverError: it is no amount, or more than a guest can have.
    """
    factor = _BYTES.get(unit or "KiB")
    if factor is None:
        raise fault(what, f"{(unit or '')[:20]!r} is no unit of memory")
    return natural(text, what, MOST_KIB * 1024 // factor) * factor // 1024


def mib_up(kib: int) -> int:
    """Return KiB as MiB, rounded up: the memory that a guest takes."""
    return -(-kib // 1024)


# libvirt knows no CPU with this number or above (VIR_DOMAIN_CPUMASK_LEN).
MOST = 16384
# The length of a list that names all of them, one by one.
LONGEST = MOST * 6
# The lists of the largest guests and hosts add up to a tenth of it; a malicious document could add
# up to billions.
MOST_IN_ALL = 1 << 20

_SPAN = re.compile(r"([0-9]+)(?:\s*-\s*([0-9]+))?")


class NumberLists:
    """Parses the lists of numbers of one document, with a limit on their total. Equal lists are
    parsed once.
    """

    def __init__(self) -> None:
        self._known: dict[str, frozenset[int]] = {}
        self._left = MOST_IN_ALL

    def read(self, text: str, what: str) -> frozenset[int]:
        """Return the numbers of a list that is not empty. ``what`` names it in errors.

        :raises DriverError: it is no such list, is empty, has a number that no CPU has, or the
            limit is exceeded.
        """
        if text not in self._known:
            try:
                self._known[text] = self._parse_list(text.strip())
            except ValueError as error:
                raise fault(what, str(error)) from error
        return self._known[text]

    def one(self, text: str | None, what: str) -> int | None:
        """Return the only number of a list; None if it has several, or there is no list. Raises as
        :meth:`read`.
        """
        return only_one(self.read(text, what)) if text else None

    def _parse_list(self, text: str) -> frozenset[int]:
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
    """Return the number, if there is just one; else None."""
    return next(iter(numbers)) if len(numbers) == 1 else None
