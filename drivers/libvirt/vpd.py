"""The vital product data of a card as libvirt writes it: the serial number, and XML that it breaks.

Some libvirts (9.0 is one) copy the fields of the card into the XML as they are, whatever is in them.
"""

from drivers.libvirt.xml import Element, text_of

_STARTS = ("<capability type='vpd'>", '<capability type="vpd">')
_END = "</capability>"
_LONGEST = 255


def serial_number(capability: Element) -> str | None:
    """What the data in a device's capability says, None if there is none, or none that could be one."""
    vpd = capability.find("capability[@type='vpd']")
    return None if vpd is None else _sound(text_of(vpd, "fields/serial_number"))


def without_data(xml: str) -> tuple[str, str | None]:
    """The XML of a device without its vital product data, for want of a way to read them; and the serial number, if that much can be seen."""
    start = next((place for mark in _STARTS if (place := xml.find(mark)) >= 0), -1)
    end = xml.find(_END, start)
    if start < 0 or end < 0:
        return xml, None
    _, found, rest = xml[start:end].partition("<serial_number>")
    serial, closed, _ = rest.partition("</serial_number>")
    return xml[:start] + xml[end + len(_END) :], _sound(serial) if found and closed else None


def _sound(text: str) -> str | None:
    text = text.strip()
    return text if 0 < len(text) <= _LONGEST and text.isascii() and text.isprintable() else None
