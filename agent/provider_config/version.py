"""Which version of the format a file is written in, and whether it can be read."""

import re
from dataclasses import dataclass

from agent.errors import ConfigError
from agent.yaml_files.document import Document, Where, shown

KNOWN = (1, 0)
FIRST_LINE = "let the file begin with the line   meta: {schema_version: '1.0'}"
QUOTED = "write the version in quotes: '1.0'"
WHERE: Where = ("meta", "schema_version")

_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class FormatVersion:
    """``text``: as the file says it. ``readable``: so much that the rest of the file can be looked at. ``newer``: than what is known here."""

    text: str = ""
    readable: bool = False
    newer: bool = False
    error: ConfigError | None = None


def version_of(document: Document) -> FormatVersion:
    """The version of a file, or what is wrong with it."""
    data = document.data
    if not isinstance(data, dict):
        return FormatVersion(error=document.error((), f"is {shown(data)}, not a mapping", FIRST_LINE))
    meta = data.get("meta")
    if not isinstance(meta, dict) or "schema_version" not in meta:
        what = "lacks meta" if "meta" not in data else "lacks schema_version" if isinstance(meta, dict) else f"is {shown(meta)}, not a mapping"
        return FormatVersion(readable=True, error=document.error(("meta",) if "meta" in data else (), what, FIRST_LINE))
    text = meta["schema_version"]
    if not isinstance(text, str):
        return FormatVersion(readable=True, error=document.error(WHERE, f"is {shown(text)}, not text", QUOTED))
    found = _VERSION.fullmatch(text)
    if found is None:
        return FormatVersion(error=document.error(WHERE, f"is {shown(text)}, not a version", QUOTED))
    major, minor = (int(number) for number in found.groups())
    if major != KNOWN[0]:
        return FormatVersion(error=document.error(WHERE, f"is {shown(text)}, which is not supported here", f"supported: {supported()}"))
    return FormatVersion(text, readable=True, newer=minor > KNOWN[1])


def supported() -> str:
    """The versions that can be read."""
    return f"{KNOWN[0]}.N, known up to {KNOWN[0]}.{KNOWN[1]}"
