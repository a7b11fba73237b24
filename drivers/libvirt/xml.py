"""Reading XML that libvirtd sent, which is not to be trusted: it may be cut off, unescaped, huge, deep, or made to harm."""

import re
from xml.etree import ElementTree

from agent.errors import DriverError
from agent.model.names import printable

# libvirt's own limit of a text in an answer (REMOTE_STRING_MAX).
LARGEST = 4 * 1024 * 1024
# What libvirt sends is about twelve deep.
DEEPEST = 64

_INTEGER = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,12}|[0-9]{1,15}")

Element = ElementTree.Element


def fault(what: str, why: str) -> DriverError:
    """An error of one line that names what was read."""
    return DriverError(printable(f"{what}: {why}"))


class _Builder(ElementTree.TreeBuilder):
    """Refuses a document type, and so all entities, which can be declared nowhere else. The parser tells what is one and what is a guest's own text."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def doctype(self, _name: str, _public: str | None, _system: str | None) -> None:
        raise fault(self._what, "its XML has a document type, which libvirt never sends")


def parse(text: str, what: str, root: str) -> Element:
    """The element ``root`` that ``text`` is. ``what`` names the text in errors.

    :raises DriverError: it is no well-formed XML, is another element, is too large or too deep, or has a document type.
    """
    if len(text) > LARGEST:
        raise fault(what, f"its XML has {len(text)} characters, more than {LARGEST}")
    try:
        found = ElementTree.fromstring(text, ElementTree.XMLParser(target=_Builder(what)))  # noqa: S314 -- the builder refuses what could declare entities
    except (ElementTree.ParseError, ValueError) as error:
        raise fault(what, f"malformed XML: {error}") from error
    if found.tag != root:
        raise fault(what, f"its XML is {_shown(found.tag)}, not {root!r}")
    _check_depth(found, what)
    return found


def _check_depth(root: Element, what: str) -> None:
    level = [root]
    for _ in range(DEEPEST):
        level = [child for one in level for child in one]
        if not level:
            return
    raise fault(what, f"its XML is more than {DEEPEST} elements deep")


def child(parent: Element, path: str, what: str) -> Element:
    """The first element at ``path``.

    :raises DriverError: there is none.
    """
    found = parent.find(path)
    if found is None:
        raise fault(what, f"no <{path}> in <{parent.tag}>")
    return found


def text_of(parent: Element, path: str) -> str:
    """The text of the first element at ``path``, without blanks around it; empty if there is none."""
    return (parent.findtext(path) or "").strip()


def integer(text: str | None, what: str) -> int:
    """A decimal number as libvirt writes it.

    :raises DriverError: it is none.
    """
    if text is None or _INTEGER.fullmatch(text.strip()) is None:
        raise fault(what, f"{_shown(text)} is not a number")
    return int(text)


def natural(text: str | None, what: str) -> int:
    """As :func:`integer`, of a number that cannot be negative."""
    number = integer(text, what)
    if number < 0:
        raise fault(what, f"{number} is negative")
    return number


def number(text: str | None, what: str, most: int) -> int:
    """A part of an address: decimal, or hexadecimal after ``0x``, at most ``most``.

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
