"""Names and identifiers: their types, patterns and normal forms."""

import re
import traceback
import uuid
from typing import NewType

ProviderUuid = NewType("ProviderUuid", str)
ConsumerUuid = NewType("ConsumerUuid", str)

MAX_PROVIDER_NAME = 200
MAX_TOKEN = 255

_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_TOKEN = re.compile(r"[A-Z0-9_]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# Up to the last @ before the path, because whoever forgot to quote one in a password means that. What stands there alone may be
# a token if the URL is HTTP's; elsewhere, as in that of a database, it is a user's name, which helps in a message.
_PASSWORD_IN_URL = re.compile(r"(\bhttps?://(?:[^/\s:'\"]*:)?|://[^/\s:'\"]*:)[^/\s'\"]+@")
_PASSWORD_OPTION = re.compile(r"(\b(?:ssl)?password=)('[^']*'|[^&\s'\"]+)")
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


AGENT_MARK = "CUSTOM_COMPUTE_NODE_AGENT_"
"""How the traits begin by which agents mark the roots of their nodes."""


def custom_token(text: str) -> str:
    """``text`` as a custom name: upper case, everything foreign an underscore, ``CUSTOM_`` in front."""
    return ("CUSTOM_" + _NOT_TOKEN.sub("_", text.upper()))[:MAX_TOKEN]


def masked(text: str) -> str:
    """``text`` without the passwords, and tokens in their place, of the URLs and connection strings in it."""
    if "://" not in text and "password=" not in text:
        return text
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD_IN_URL.sub(r"\1***@", text))


def number_of(count: int, noun: str) -> str:
    """How many there are, in words that fit: ``1 candidate``, ``2 candidates``. ``noun``: what one of them is called."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """``text`` with control characters, line or direction marks and what is no character escaped, for logs and reports."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def printable_traceback(error: BaseException) -> str:
    """Where ``error`` was raised, on indented lines that nobody takes for lines of the log, with what came from outside escaped."""
    lines = "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    return "\n".join(f"    {printable(line)}" for line in lines)
