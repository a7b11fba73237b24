"""Amounts of memory as libvirt writes them: a number and its unit."""

from drivers.libvirt.xml import fault, natural

_BYTES: dict[str, int] = {"b": 1, "bytes": 1} | {
    unit: base**power
    for power, letter in enumerate("KMGT", start=1)
    for unit, base in ((letter, 1024), (letter.lower(), 1024), (f"{letter}iB", 1024), (f"{letter}B", 1000))
}


def kib_of(text: str | None, unit: str | None, what: str) -> int:
    """The amount in KiB, rounded down; KiB is meant where no unit is given.

    :raises DriverError: it is no amount.
    """
    factor = _BYTES.get(unit or "KiB")
    if factor is None:
        raise fault(what, f"{(unit or '')[:20]!r} is no unit of memory")
    return natural(text, what) * factor // 1024


def mib_up(kib: int) -> int:
    """KiB in MiB, rounded up: what a guest takes."""
    return -(-kib // 1024)
