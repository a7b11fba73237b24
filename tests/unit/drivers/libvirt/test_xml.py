"""XML that is not to be trusted."""

import threading
import time

import pytest

from agent.errors import DriverError
from drivers.libvirt.binding import Debouncer
from drivers.libvirt.xml import (
    DEEPEST,
    LARGEST,
    MOST,
    MOST_IN_ALL,
    NumberLists,
    integer,
    kib_of,
    mib_up,
    natural,
    number,
    parse,
)
from tests.support.service_manager import until


def nested(depth: int) -> str:
    return "<a>" * depth + "</a>" * depth


def test_well_formed_text_is_its_root():
    assert parse("<?xml version='1.0' encoding='UTF-16'?><a b='1'/>", "X", "a").get("b") == "1"


@pytest.mark.parametrize(
    "text",
    [
        "<![CDATA[<!DOCTYPE html><b>]]>",
        "<!-- <!DOCTYPE a> -->",
        "&lt;!DOCTYPE a>",
        "<?x <!DOCTYPE a> ?>",
    ],
)
def test_what_only_looks_like_a_document_type_is_text(text):
    assert parse(f"<a><b>{text}</b></a>", "X", "a").find("b") is not None


def test_what_is_as_deep_as_may_be_is_read():
    assert parse(nested(DEEPEST), "X", "a").tag == "a"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "X: malformed XML: no element found"),
        ("<a><b></a>", "X: malformed XML: mismatched tag"),
        ("<a>&unknown;</a>", "X: malformed XML: undefined entity"),
        ("<a>\0</a>", "X: malformed XML"),
        ("<a>\ud800</a>", "X: malformed XML"),
        ("<b/>", "X: its XML is 'b', not 'a'"),
        (nested(DEEPEST + 1), f"X: its XML is more than {DEEPEST} elements deep"),
        ("<a>" * 1_000_000, "X: malformed XML"),
        (
            "<a>" + "x" * LARGEST + "</a>",
            f"X: its XML has {LARGEST + 7} characters, more than {LARGEST}",
        ),
        ('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "X: its XML has a document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "X: its XML has a document type"),
        (f"<{'b' * 100000}/>", f"X: its XML is '{'b' * 40}...', not 'a'"),
    ],
    ids=(
        "empty",
        "mismatched",
        "entity",
        "nul",
        "surrogate",
        "another",
        "deep",
        "open",
        "huge",
        "bomb",
        "external",
        "long-name",
    ),
)
def test_what_cannot_be_read_is_one_fault_of_one_line(text, what):
    with pytest.raises(DriverError) as caught:
        parse(text, "X", "a")
    assert caught.value.message.startswith(what)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300


def test_control_characters_of_what_is_named_are_escaped():
    with pytest.raises(DriverError, match=r"a\\nb: malformed"):
        parse("", "a\nb", "a")


@pytest.mark.parametrize("text", [None, "", "1.5", "٣", "1" * 16, "one", "0x10", "--1"])
def test_what_is_no_decimal_number_is_refused(text):
    with pytest.raises(DriverError, match="is not a number"):
        integer(text, "X")


def test_decimal_numbers_may_have_blanks_around_them():
    assert (integer(" -1\n", "X"), natural(" 7 ", "X")) == (-1, 7)
    with pytest.raises(DriverError, match="X: -1 is negative"):
        natural("-1", "X")


@pytest.mark.parametrize(("text", "value"), [("0x1f", 31), ("31", 31), (" 0x1F ", 31), ("0", 0)])
def test_parts_of_addresses_are_decimal_or_hexadecimal(text, value):
    assert number(text, "X", 0x1F) == value


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "not a number"),
        ("-1", "not a number"),
        ("x", "a number"),
        ("0x20", "above 0x1f"),
        ("99", "above 0x1f"),
    ],
)
def test_parts_of_addresses_that_are_none_are_refused(text, what):
    with pytest.raises(DriverError, match=what):
        number(text, "X", 0x1F)


def test_lists_of_cpus():
    lists = NumberLists()
    assert lists.read("0-2,^1, 8", "X") == {0, 2, 8}
    assert [lists.one(text, "X") for text in ("7", "7-8", "", None)] == [7, None, None, None]


@pytest.mark.parametrize(
    "text",
    ["", "a", "3-1", "0-99999", "0-1000000", "99999999999999999999", "1," * 60000, "^1"],
    ids=(
        "empty",
        "word",
        "backwards",
        "five-digits",
        "a-million",
        "twenty-digits",
        "long",
        "nothing-left",
    ),
)
def test_lists_that_are_none_or_too_long_are_refused(text):
    with pytest.raises(DriverError, match=r"^X: "):
        NumberLists().read(text, "X")


def test_lists_of_one_document_that_come_to_too_much_are_refused():
    lists = NumberLists()
    most = f"0-{MOST - 1}"
    for _ in range(MOST_IN_ALL // MOST + 1):
        lists.read(most, "X")
    with pytest.raises(DriverError, match=r"X: the lists name more than \d+ in all"):
        for first in range(MOST_IN_ALL // MOST):
            lists.read(f"{first},{most}", "X")


@pytest.mark.parametrize(
    ("text", "unit", "kib"),
    [
        ("5", None, 5),
        ("5", "KiB", 5),
        ("2", "MiB", 2048),
        ("1", "G", 1048576),
        ("1024", "bytes", 1),
        ("2048", "b", 2),
        ("1", "MB", 976),
    ],
)
def test_amounts_of_memory_by_their_units(text, unit, kib):
    assert kib_of(text, unit, "X") == kib


def test_amounts_that_are_none_are_refused():
    with pytest.raises(DriverError, match="'furlong' is no unit of memory"):
        kib_of("1", "furlong", "X")


def test_what_a_guest_takes_is_rounded_up():
    assert [mib_up(kib) for kib in (0, 1, 1024, 1025)] == [0, 1, 1, 2]


# --- things told later ---


LATER = 0.2


def test_what_is_cancelled_or_put_again_is_not_told_before():
    told = []
    delayed = Debouncer(LATER, lambda: told.append(time.monotonic()))
    delayed.put("cancelled")
    delayed.put("again")
    time.sleep(LATER / 2)
    delayed.cancel("cancelled")
    delayed.cancel("unknown")
    put = time.monotonic()
    delayed.put("again")
    until(lambda: told)
    time.sleep(2 * LATER)
    assert len(told) == 1
    assert told[0] - put >= LATER
    delayed.close()


def test_at_the_end_nothing_more_is_told_and_its_thread_ends():
    before, told = threading.active_count(), []
    delayed = Debouncer(LATER, lambda: told.append(1))
    delayed.put("one")
    delayed.close()
    delayed.put("two")
    assert threading.active_count() == before
    time.sleep(1.5 * LATER)
    assert told == []
