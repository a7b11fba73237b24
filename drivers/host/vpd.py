"""The serial number of a card, from the vital product data of one of its functions."""

from collections.abc import Iterator

from drivers.host.sysfs import Sysfs

# The most that the standard's 15 bits can address.
LARGEST = 32 * 1024
READ_ONLY, END = 0x10, 0x0F


def serial_number(sysfs: Sysfs, folder: str) -> str | None:
    """What the function in ``folder`` says; None if it says nothing.

    Only root may read it, and cards that have it badly are many, so that one that cannot be read has none.
    """
    data = sysfs.optional_bytes(f"{folder}/vpd", LARGEST)
    return _serial_number(data) if data else None


def _serial_number(data: bytes) -> str | None:
    for tag, content in _resources(data):
        if tag == READ_ONLY:
            found = next((value for keyword, value in _fields(content) if keyword == b"SN"), b"")
            text = found.rstrip(b"\0 ").decode("ascii", "replace").strip()
            return text if text and text.isascii() and text.isprintable() else None
    return None


def _resources(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each resource up to the end; what is cut off is left out."""
    place = 0
    while place < len(data):
        head = data[place]
        if head & 0x80:
            tag, size, place = head & 0x7F, int.from_bytes(data[place + 1 : place + 3], "little"), place + 3
        else:
            tag, size, place = head >> 3, head & 0x07, place + 1
        if tag == END and not head & 0x80:
            return
        if place + size <= len(data):
            yield tag, data[place : place + size]
        place += size


def _fields(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 0
    while place + 3 <= len(content):
        size = content[place + 2]
        yield content[place : place + 2], content[place + 3 : place + 3 + size]
        place += 3 + size
