"""Names and identifiers: their types, patterns and normal forms."""

import re
import uuid
from typing import NewType

ProviderUuid = NewType("ProviderUuid", str)
ConsumerUuid = NewType("ConsumerUuid", str)

MAX_PROVIDER_NAME = 200
MAX_TOKEN = 255

_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_TOKEN = re.compile(r"[A-Z0-9_]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_TOKEN = re.compile(r"[^A-Z0-9_]")


def is_uuid(text: str) -> bool:
    """Whether ``text`` is a uuid in any spelling that Python's ``uuid`` accepts."""
    try:
        uuid.UUID(text)
    except (ValueError, AttributeError, TypeError):
        return False
    return True


def normal_uuid(text: str) -> ProviderUuid:
    """Lower-case dashed form; Placement answers 404 to every other spelling in a path.

    :raises ValueError: ``text`` is not a uuid.
    """
    return ProviderUuid(str(uuid.UUID(text)))


def child_uuid(root: str, name: str) -> ProviderUuid:
    """The uuid of a child that the driver did not choose: the same in a dry run and in the run after it."""
    return ProviderUuid(str(uuid.uuid5(uuid.UUID(root), name)))


def is_custom(token: str) -> bool:
    """Whether ``token`` is a valid custom trait or resource class name."""
    return len(token) <= MAX_TOKEN and _CUSTOM.fullmatch(token) is not None


def is_token(token: str) -> bool:
    """Whether ``token`` is a valid trait or resource class name, standard or custom."""
    return len(token) <= MAX_TOKEN and _TOKEN.fullmatch(token) is not None


def custom_token(text: str) -> str:
    """``text`` as a custom name: upper case, everything foreign an underscore, ``CUSTOM_`` in front."""
    return ("CUSTOM_" + _NOT_TOKEN.sub("_", text.upper()))[:MAX_TOKEN]


def printable(text: str) -> str:
    """``text`` with control characters, line or direction marks and what is no character escaped, for logs and reports."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)
