"""Values of an option that holds JSON objects and may be given several times, and errors that name
option, place and key.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import os_resource_classes as orc
import os_traits

from agent.errors import ConfigError
from agent.model.names import MAX_TOKEN, is_custom, is_token, printable

_FOREIGN = re.compile(r"[^A-Z0-9_]+")


def class_of(text: str) -> str:
    """Return the resource class that ``text`` means: a standard one in upper or lower case, else a
    custom one.

    :raises ValueError: its name would be too long.
    """
    name = text.strip().upper()
    return _check_name(name if name in orc.STANDARDS or is_custom(name) else _custom(name))


def class_of_ids(vendor_id: str, product_id: str) -> str:
    """Return the resource class of a device for which the options name no other."""
    return f"CUSTOM_PCI_{vendor_id}_{product_id}".upper()


def traits_of(text: str) -> tuple[frozenset[str], list[str]]:
    """Return the traits of a list with commas, and the reason for each item that cannot be a trait.
    Empty items are ignored.
    """
    traits, wrong = set(), []
    for item in filter(None, map(str.strip, text.split(","))):
        try:
            traits.add(_trait(item))
        except ValueError as error:
            wrong.append(str(error))
    return frozenset(traits), wrong


def _trait(text: str) -> str:
    """Return one trait.

    :raises ValueError: the text cannot be the name of a trait.
    """
    name = text.upper()
    return _check_name(
        name if name in _standard_traits() or name.startswith("CUSTOM_") else _custom(name)
    )


@cache
def _standard_traits() -> frozenset[str]:
    return frozenset(os_traits.get_traits())


def _custom(name: str) -> str:
    return "CUSTOM_" + _FOREIGN.sub("_", name)


def _check_name(name: str) -> str:
    if is_token(name):
        return name
    if _FOREIGN.search(name):
        raise ValueError(f"{name[:60]} has other characters than A-Z, 0-9 and _")
    raise ValueError(f"{name[:60]}... has {len(name)} characters, more than {MAX_TOKEN}")


MAX_SHOWN = 60
EXAMPLE = 'write {"key": "value"}'

_ID = re.compile(r"(?:0[xX])?([0-9a-fA-F]+)")
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "off", "0"), False
)
_BOOLEAN = "true or false"


@dataclass(frozen=True, slots=True)
class Item:
    """One object of ``option``.

    The methods that read a key add what is wrong to ``errors`` and return None then, as for a key
    that is not there.
    """

    option: str
    place: str
    """``#2`` for the object of the second value, ``#2.3`` for the third one in its list."""
    data: dict[str, Any]
    errors: list[ConfigError] = field(default_factory=list)

    def wrong(self, key: str, what: str, remedy: str) -> None:
        """Add an error about a key; ``what`` continues the sentence after its name."""
        text = printable(f"{key} {what}")
        self.errors.append(
            ConfigError(
                f"{self.option} {self.place}: {text}",
                remedy,
                option=self.option,
                place=self.place,
                key=key,
            )
        )

    def unsuitable(self, key: str, remedy: str) -> None:
        """Add an error about the value of a key."""
        self.wrong(key, f"= {shown(self.data[key])}", remedy)

    def check_keys(self, known: Collection[str]) -> None:
        """Add an error for every key that is not among ``known``."""
        for key in self.data.keys() - set(known):
            self.wrong(key, "is an unknown key", unknown_key(key, known))

    def says(self, key: str) -> bool:
        """Return whether the key has a value: null and empty text are none."""
        return self.data.get(key) not in (None, "")

    def text(self, key: str) -> str | None:
        """Return text that is not blank, without the blanks around it."""
        if not self.says(key):
            return None
        value = self.data[key]
        if not isinstance(value, str) or not value.strip():
            self.unsuitable(key, "give text in quotes, or remove the key")
            return None
        return value.strip()

    def boolean(self, key: str) -> bool | None:
        """Return true or false, from any of the usual words."""
        if not self.says(key):
            return None
        value = self.data[key]
        found = (
            value
            if isinstance(value, bool)
            else _BOOLEANS.get(value.strip().lower())
            if isinstance(value, str)
            else None
        )
        if found is None:
            self.unsuitable(key, f"give {_BOOLEAN}")
        return found

    def hex_id(self, key: str) -> str | None:
        """Return four lower-case hex digits, None for any."""
        if key not in self.data:
            return None
        value = self.data[key]
        if not isinstance(value, str):
            self.wrong(
                key, f"must be a string of hex digits, not {shown(value)}", f'write "{key}": "8086"'
            )
            return None
        match = _ID.fullmatch(value.strip())
        if match is not None and len(match[1].lstrip("0")) <= 4:
            return match[1].lstrip("0").lower().zfill(4)
        if value.strip() != "*":
            self.unsuitable(key, "give up to four hex digits such as 8086, or * for any")
        return None


def read_items(
    option: str, values: Iterable[str], *, lists: bool
) -> tuple[list[Item], list[ConfigError]]:
    """Return the objects of an option's ``values``, and what is wrong with the other values.
    ``lists``: a value may be a list of objects.
    """
    items: list[Item] = []
    errors: list[ConfigError] = []
    for number, value in enumerate(values, 1):
        for place, element in _parse_value(option, f"#{number}", value, lists, errors):
            if isinstance(element, dict):
                items.append(Item(option, place, element))
            else:
                wanted = "an object, or a list of objects" if lists else "an object"
                errors.append(_error(option, place, f" = {shown(element)}: not {wanted}", EXAMPLE))
    return items, errors


def empty_keys(
    option: str, values: Iterable[str], *, lists: bool, meant: Collection[str] = ()
) -> Iterator[str]:
    """Yield a line for each key without a value, which may be a mistake. ``meant``: keys for which
    that is usual.
    """
    for item in read_items(option, values, lists=lists)[0]:
        for key, value in item.data.items():
            if key not in meant and not item.says(key):
                yield printable(
                    f"{option} {item.place}: {key} = {shown(value)} says nothing; remove the key"
                )


def in_order(errors: Iterable[ConfigError]) -> list[ConfigError]:
    """Return the errors in the order of their places."""
    return sorted(
        errors,
        key=lambda error: [
            int(number) for number in error.data["place"].removeprefix("#").split(".")
        ],
    )


def unknown_key(key: str, known: Collection[str]) -> str:
    """Return the remedy for an unknown key."""
    close = difflib.get_close_matches(key, sorted(known), 1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(known))}"


def shown(value: Any) -> str:
    """Return a value for a message: short, on one line, as JSON."""
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _parse_value(
    option: str, place: str, text: str, lists: bool, errors: list[ConfigError]
) -> Iterator[tuple[str, Any]]:
    """Yield the values in the JSON ``text``, each with its place. If it cannot be read, add an
    error and yield nothing.
    """
    repeated: list[str] = []
    try:
        found = json.loads(text, object_pairs_hook=partial(_object, repeated))
    except json.JSONDecodeError as error:
        errors.append(
            _error(
                option,
                place,
                f" = {shown(text)}: no JSON: {error.msg} at character {error.pos + 1}",
                EXAMPLE,
            )
        )
        return
    except (ValueError, RecursionError):
        # Numbers of thousands of digits, or lists nested too deep.
        errors.append(_error(option, place, f" = {shown(text)}: it cannot be read", EXAMPLE))
        return
    errors += [
        _error(option, place, f": {printable(key)} is there twice", "keep one of them")
        for key in repeated
    ]
    if lists and isinstance(found, list):
        yield from ((f"{place}.{number}", element) for number, element in enumerate(found, 1))
    else:
        yield place, found


def _error(option: str, place: str, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"{option} {place}{printable(what)}", remedy, option=option, place=place)


def _object(repeated: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    names = [name for name, _ in pairs]
    repeated += (
        sorted({name for name in names if names.count(name) > 1}) if len(found) < len(names) else ()
    )
    return found
