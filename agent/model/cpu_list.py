"""CPU lists in the format of operators and the kernel: ``0-7,^3,10``."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """Parse a CPU list: items ``N``, ``A-B``, ``^N``, ``^A-B``, separated by commas; exclusions
    apply to the whole list.

    Blanks and empty items are ignored.

    :raises ValueError: an item is no number or range or is above 1000000, or a text that is not
        blank names no CPU.
    """
    included: set[int] = set()
    excluded: set[int] = set()
    items = [item.strip() for item in text.split(",") if item.strip()]
    for item in items:
        target, span = (excluded, item[1:].strip()) if item.startswith("^") else (included, item)
        first, dash, last = (part.strip() for part in span.partition("-"))
        if not (first.isascii() and first.isdigit()) or (
            dash and not (last.isascii() and last.isdigit())
        ):
            raise ValueError(f"{item!r} is neither a CPU number nor a range A-B")
        low, high = int(first), int(last or first)
        if low > high:
            raise ValueError(f"{item!r} runs backwards")
        if high > 1_000_000:
            raise ValueError(f"{item!r} names a CPU above 1000000")
        target.update(range(low, high + 1))
    cpus = frozenset(included - excluded)
    if text.strip() and not cpus:
        raise ValueError(f"{text!r} leaves no CPU")
    return cpus


def format_cpu_list(cpus: frozenset[int] | set[int]) -> str:
    """Return the shortest list of ranges: ``0-3,8``."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
