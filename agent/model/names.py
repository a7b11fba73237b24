"""Names and identifiers: types, patterns and normal forms."""

import ipaddress
import re
import traceback
import uuid
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, NewType, Self, TypeVar

ProviderUuid = NewType("ProviderUuid", str)
ConsumerUuid = NewType("ConsumerUuid", str)
Node = TypeVar("Node")

MAX_PROVIDER_NAME = 200
MAX_TOKEN = 255

_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_TOKEN = re.compile(r"[A-Z0-9_]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# The password extends to the last @ before the path, because a password may contain an @ that was
# not quoted. Text before the @ without a colon may be a token in an HTTP URL, and is masked there;
# in other URLs, as in that of a database, it is a user's name, which helps in a message.
_PASSWORD_IN_URL = re.compile(r"(\bhttps?://(?:[^/\s:'\"]*:)?|://[^/\s:'\"]*:)[^/\s'\"]+@")
_PASSWORD_OPTION = re.compile(r"(\b(?:ssl)?password=)('[^']*'|[^&\s'\"]+)")
NORMAL_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOT_TOKEN = re.compile(r"[^A-Z0-9_]")
_LOCALHOST = re.compile(r"(ip6-)?(localhost|loopback)[46]?(\..*)?|\(none\)", re.IGNORECASE)


class ApiVersion(NamedTuple):
    """The version of an API, or a microversion. Compared by number, so that 1.109 is later than
    1.82.
    """

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a text such as ``1.46``.

        :raises ValueError: it is no version.
        """
        major, minor = text.split(".")
        return cls(int(major), int(minor))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def is_uuid(text: str) -> bool:
    """Return whether ``text`` is a uuid in any spelling that Python's ``uuid`` accepts."""
    if isinstance(text, str) and NORMAL_UUID.fullmatch(text) is not None:
        return True
    try:
        uuid.UUID(text)
    except (ValueError, AttributeError, TypeError):
        return False
    return True


def normal_uuid(text: str) -> ProviderUuid:
    """Return the lower-case dashed form; Placement answers 404 to every other spelling in a path.

    :raises ValueError: ``text`` is not a uuid.
    """
    if NORMAL_UUID.fullmatch(text) is not None:
        return ProviderUuid(text)
    return ProviderUuid(str(uuid.UUID(text)))


# Begins a role that is a whole name and could be taken for what follows a node's name.
_WHOLE = "="


def child_role(name: str, node: str) -> str:
    """Return what the provider called ``name`` is to the node called ``node``: what follows the
    node's name, such as ``_NUMA0``, or the whole name if that does not begin with the node's.
    """
    rest = name.removeprefix(node)
    if node and rest != name and rest and follows_name(rest):
        return rest
    return name if name[:1].isalnum() else _WHOLE + name


def child_name(role: str, node: str) -> str:
    """Return the name of the provider that has this role below the node called ``node``."""
    return node + role if follows_name(role) else role.removeprefix(_WHOLE)


def follows_name(text: str) -> bool:
    """Return whether ``text`` can be a role that follows a node's name."""
    return not text[0].isalnum() and text[0] != _WHOLE


def child_uuid(root: str, role: str) -> ProviderUuid:
    """Return the uuid of a child provider for which the driver chose none. It depends on the root's
    uuid and on the child's role, so that it is the same in a dry run and in the run after it, and
    after the node got another name.
    """
    return ProviderUuid(str(uuid.uuid5(uuid.UUID(root), role)))


def is_unnamed(host: str) -> bool:
    """Return whether ``host`` is what a machine is called that has no name yet: ``localhost`` in
    any form, or an address. Other machines are called so, too.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _LOCALHOST.fullmatch(host) is not None
    return True


def is_custom(token: str) -> bool:
    """Return whether ``token`` is a valid custom trait or resource class name."""
    return len(token) <= MAX_TOKEN and _CUSTOM.fullmatch(token) is not None


def is_token(token: str) -> bool:
    """Return whether ``token`` is a valid trait or resource class name, standard or custom."""
    return len(token) <= MAX_TOKEN and _TOKEN.fullmatch(token) is not None


AGENT_MARK = "CUSTOM_COMPUTE_NODE_AGENT_"
"""The prefix of the traits by which agents mark the roots of their nodes."""


def custom_token(text: str) -> str:
    """Return ``text`` as a custom name: in upper case, with ``_`` for every other character, after
    the prefix ``CUSTOM_``.
    """
    return ("CUSTOM_" + _NOT_TOKEN.sub("_", text.upper()))[:MAX_TOKEN]


def masked(text: str) -> str:
    """Return ``text`` with the passwords and tokens in its URLs and connection strings replaced by
    ``***``.
    """
    if "://" not in text and "password=" not in text:
        return text
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD_IN_URL.sub(r"\1***@", text))


def number_of(count: int, noun: str) -> str:
    """Return a count with its noun in the right number: ``1 candidate``, ``2 candidates``.
    ``noun``: in the singular.
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


MOST_NAMED = 5
"""How many things of a list a message names."""


def name_first(names: Sequence[str], most: int = MOST_NAMED, separator: str = ", ") -> str:
    """Return the first ``most`` names, and how many more there are: ``a, b and 3 more``. With the
    separator ``; ``: ``a; b; and 3 more``.
    """
    more = len(names) - most
    named = separator.join(names[:most])
    return f"{named}{separator.rstrip(' ,')} and {more} more" if more > 0 else named


def choose_nodes(
    nodes: Iterable[Node], wanted: Sequence[str], identify: Callable[[Node], tuple[str, str]]
) -> tuple[list[Node], list[str]]:
    """Return the nodes that a user chose by uuid, name or pattern of names, all nodes without such
    a choice; and what of the choice fits no node.

    ``wanted``: the choice, as the values of ``--node``. ``identify``: returns uuid and name.
    """
    chosen, matched = [], set()
    for node in nodes:
        uuid, name = identify(node)
        matching = {text for text in wanted if text == uuid or fnmatchcase(name, text)}
        matched |= matching
        if matching or not wanted:
            chosen.append(node)
    return chosen, [text for text in wanted if text not in matched]


def printable(text: str) -> str:
    """Return ``text`` with control characters, line and direction marks and lone surrogates
    escaped, for logs and reports.
    """
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def printable_traceback(error: BaseException) -> str:
    """Return the traceback of ``error``, indented so that its lines differ from those of the log,
    with text from outside escaped.
    """
    lines = "".join(traceback.format_exception(error)).rstrip("\n").split("\n")
    return "\n".join(f"    {printable(line)}" for line in lines)


def format_cpu_list(cpus: frozenset[int] | set[int]) -> str:
    """Return the shortest list of ranges: ``0-3,8``."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
