"""Sizes of pages as people write them: ``2048`` (KiB), ``2MB``, ``1GB``."""

import re

_SIZE = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_SCALE = {"": 1, "K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}


def parse_page_size(text: str) -> int:
    """A size in KiB, out of a number of KiB or a number with a suffix.

    :raises ValueError: it is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]) or (not found[2] and found[0] != found[1]):
        raise ValueError("neither a number of KiB nor a size like 2MB")
    return int(found[1]) * _SCALE[found[2].upper()]
