"""The vital product data of a card as libvirt writes it: the serial number, and XML that it breaks.

Some libvirts (9.0 is one) copy the fields of the card into the XML as they are, whatever is in them.
"""

import re

from drivers.libvirt.xml import Element, text_of

_BLOCK = re.compile(r"<capability type=(['\"])vpd\1>.*?</capability>", re.DOTALL)
_SERIAL = re.compile(r"<serial_number>(.*?)</serial_number>", re.DOTALL)
_LONGEST = 255


def serial_number(capability: Element) -> str | None:
    """What the data in a device's capability says, None if there is none, or none that could be one."""
    vpd = capability.find("capability[@type='vpd']")
    return None if vpd is None else _sound(text_of(vpd, "fields/serial_number"))


def without_data(xml: str) -> tuple[str, str | None]:
    """The XML of a device without its vital product data, for want of a way to read them; and the serial number, if that much can be seen."""
    block = _BLOCK.search(xml)
    if block is None:
        return xml, None
    serial = _SERIAL.search(block[0])
    return xml[: block.start()] + xml[block.end() :], _sound(serial[1]) if serial else None


def _sound(text: str) -> str | None:
    text = text.strip()
    return text if 0 < len(text) <= _LONGEST and text.isascii() and text.isprintable() else None
