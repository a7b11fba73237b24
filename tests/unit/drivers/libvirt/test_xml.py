"""XML that is not to be trusted."""

import importlib
import threading
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import DriverError
from agent.model.facts import HostFacts
from drivers.libvirt.binding import Debouncer
from drivers.libvirt.raw_capabilities import (
    DeviceAnswer,
    DomainAnswer,
    KernelAnswer,
    RawCapabilities,
)
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
from tests.unit.drivers.libvirt.libvirt_answers import DEVICES, VPD, answers, domain, facts, fixture


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
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><b/>', "X: its XML is 'b', not 'a'"),
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


def test_what_is_cancelled_or_put_again_is_not_told_before(monkeypatch):
    now, told = [0.0], []
    # The package has the function of the module under the module's name.
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(importlib.import_module("drivers.libvirt.binding"), "time", clock)
    delayed = Debouncer(10, lambda: told.append(now[0]))
    delayed.put("cancelled")
    delayed.put("again")
    now[0] = 6.0
    delayed.cancel("cancelled")
    delayed.cancel("unknown")
    delayed.put("again")
    for moment in (15.0, 16.0):
        now[0] = moment
        # Has the thread look.
        delayed.put("later")
        time.sleep(0.05)
    until(lambda: told)
    now[0] = 26.0
    delayed.put("last")
    until(lambda: len(told) > 1)
    assert told == [16.0, 26.0]
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


# --- whatever libvirt sends ---


END = "</capability></device>"
CARD = replace(DEVICES[2], xml=DEVICES[2].xml.replace(END, VPD.format("MT1") + END))
WHOLE = answers(
    devices=(*DEVICES[:2], CARD, *DEVICES[3:]),
    kernel=KernelAnswer({"sev": "Y", "sev_es": "Y"}, "sev 9\nsev_es 410\n"),
)
UNDISTURBED = facts(WHOLE)
SLOW = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)

# What breaks readers: nothing, signs, sizes, other digits, ranges, controls, marks of direction,
# what is no character, and XML.
NASTY = st.sampled_from(
    (
        "",
        " ",
        "-1",
        "0",
        "1",
        "99999999999999999999",
        "0x",
        "0xffffffff",
        "1e9",
        "٣",
        "NaN",
        "0-16383",
        "0-1000000",
        "9-1",
        "^0",
        ",",
        "\u202e",
        "\x7f",
        "x" * 70000,
        "pci",
        "mdev",
        "nova",
        "</device>",
        "&amp;",
        "../..",
        "yes",
        "no",
    )
)


@st.composite
def broken(draw: st.DrawFn, text: str) -> str:
    """The text with a piece cut off, cut out, doubled, or put in."""
    at = draw(st.integers(0, len(text)))
    end = draw(st.integers(at, min(len(text), at + 300)))
    piece = draw(
        st.one_of(
            NASTY,
            st.text(max_size=20),
            st.sampled_from(
                ("<", ">", "&", "<a>", "</capability>", "\0", "]]>", "<!--", "<![CDATA[", "<?x ?>")
            ),
        )
    )
    return draw(
        st.sampled_from(
            (
                text[:at],
                text[:at] + text[end:],
                text[:end] + text[at:],
                text[:at] + piece + text[end:],
                text[:at] + piece + text[at:],
            )
        )
    )


@st.composite
def twisted(draw: st.DrawFn, text: str) -> str:
    """Well-formed still, with some elements gone, doubled, renamed, emptied, or saying something
    else.
    """
    root = ElementTree.fromstring(text)
    for _ in range(draw(st.integers(1, 4))):
        parents = [one for one in root.iter() if len(one)]
        if not parents:
            break
        parent = draw(st.sampled_from(parents))
        child = draw(st.sampled_from(list(parent)))
        match draw(
            st.sampled_from(
                ("drop", "double", "rename", "text", "attribute", "no-attribute", "nest")
            )
        ):
            case "drop":
                parent.remove(child)
            case "double":
                parent.append(child)
            case "rename":
                child.tag = draw(st.sampled_from([one.tag for one in root.iter()]))
            case "text":
                child.text = draw(NASTY)
            case "attribute":
                child.set(draw(st.sampled_from([*child.keys(), "id", "type"])), draw(NASTY))
            case "no-attribute":
                child.attrib.clear()
            case _:
                child.append(ElementTree.fromstring(ElementTree.tostring(child)))
    return ElementTree.tostring(root, encoding="unicode")


def disturbed(draw: Any, text: str) -> str:
    return draw(st.one_of(broken(text), twisted(text)))


def check(found: HostFacts) -> None:
    """Nothing that was there is missing without a word."""
    for section, part, key in (
        ("pci", "pci", "address"),
        ("domains", "domains", "uuid"),
        ("numa", "numa", None),
    ):
        told, expected = getattr(found, part), getattr(UNDISTURBED, part)
        if key is None:
            assert told is not None or section in found.incomplete
            continue
        missing = {getattr(one, key) for one in expected} - {
            getattr(one, key) for one in told or ()
        }
        assert not missing or section in found.incomplete
    assert all("\n" not in why and len(why) < 3000 for why in found.incomplete.values())
    assert found.memory_mib == 31913
    if "traits" in found.incomplete:
        assert all(found.traits.values())


@SLOW
@given(st.data())
def test_a_disturbed_device_is_never_missing_without_a_word(data):
    index = data.draw(st.integers(0, len(WHOLE.devices) - 1))
    device = WHOLE.devices[index]
    bad = replace(device, xml=disturbed(data.draw, device.xml))
    check(facts(replace(WHOLE, devices=(*WHOLE.devices[:index], bad, *WHOLE.devices[index + 1 :]))))


@SLOW
@given(st.data())
def test_a_disturbed_guest_is_never_missing_without_a_word(data):
    name, other = data.draw(st.permutations(("pinned_guest", "floating_guest")))
    bad = replace(domain(name), xml=disturbed(data.draw, fixture(f"{name}.xml")))
    check(facts(replace(WHOLE, domains=(bad, domain(other)))))


@SLOW
@given(st.data())
def test_disturbed_capabilities_never_take_anything_else_with_them(data):
    check(facts(replace(WHOLE, capabilities=disturbed(data.draw, fixture("capabilities.xml")))))


@SLOW
@given(st.data())
def test_disturbed_domain_capabilities_never_take_anything_else_with_them(data):
    check(
        facts(
            replace(
                WHOLE,
                domain_capabilities={
                    ("x86_64", "q35"): disturbed(data.draw, fixture("emulator.xml"))
                },
            )
        )
    )


@SLOW
@given(st.text() | NASTY, st.text() | NASTY, st.text() | NASTY)
def test_texts_that_are_no_xml_at_all_are_faults_of_every_section(text, name, number):
    found = facts(
        replace(
            WHOLE,
            capabilities=text,
            expanded=(text,),
            domain_capabilities={(name, name): text},
            devices=(DeviceAnswer(name, name, text),),
            domains=(DomainAnswer(name, name, "running", text),),
            kernel=KernelAnswer({"sev": text or "?"}, number),
        )
    )
    assert {"cpu", "numa", "traits", "encryption", "domains"} <= set(found.incomplete)
    assert {"pci", "mdev"} & set(found.incomplete)


@settings(SLOW, max_examples=100)
@given(st.text(st.characters(codec="latin-1"), max_size=60))
def test_whatever_a_card_says_of_itself_its_function_is_there(serial):
    """Its firmware writes it, and libvirt 9.0 passes it on unescaped; only what closes the element
    can spoil the rest, and is named.
    """
    device = replace(CARD, xml=CARD.xml.replace("MT1", serial))
    found = facts(replace(WHOLE, devices=(*DEVICES[:2], device, *DEVICES[3:])))
    check(found)
    assert "</capability>" in serial or found.incomplete == {}


# --- made to harm ---------------------------------------------------------------------------------


def filled(start: str, piece: Any, end: str) -> str:
    """As much of the numbered piece as fits into one answer."""
    made, size, number = [start], len(start) + len(end), 0
    while size + len(text := piece(number)) < LARGEST:
        made.append(text)
        size += len(text)
        number += 1
    return "".join((*made, end))


CELL = "<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells>"
GUEST = "<domain><memory>1024</memory>"
HARM = {
    "deep": {"capabilities": "<capabilities>" * 300000},
    "deep and closed": {"capabilities": "<capabilities>" * 130000 + "</capabilities>" * 130000},
    "many cells": {
        "capabilities": filled(
            CELL, lambda n: f"<cell id='{n}'/>", "</cells></topology></host></capabilities>"
        )
    },
    "many bad cells": {
        "capabilities": filled(
            CELL, lambda n: f"<cell id='x{n}'/>", "</cells></topology></host></capabilities>"
        )
    },
    "many siblings": {
        "online": frozenset(range(100_000)),
        "capabilities": filled(
            CELL + "<cell id='0'><cpus>",
            lambda n: f"<cpu id='{n}' siblings='{n % MOST},0-{MOST - 1}'/>",
            "</cpus></cell></cells></topology></host></capabilities>",
        ),
    },
    "many pins": {
        "xml": filled(
            GUEST + "<cputune>",
            lambda n: f"<vcpupin vcpu='{n}' cpuset='{n % MOST},0-{MOST - 1}'/>",
            "</cputune></domain>",
        )
    },
    "one range many times": {
        "xml": filled(
            GUEST
            + f"<cpu><numa><cell id='0' cpus='0-{MOST - 1}' memory='1'/></numa></cpu><cputune>",
            lambda n: f"<vcpupin vcpu='{n}' cpuset='0-{MOST - 1}'/>",
            "</cputune></domain>",
        )
    },
    "many cells of a guest": {
        "xml": filled(
            GUEST + "<cpu><numa>",
            lambda n: f"<cell id='{n}' cpus='0-{MOST - 1},{n % MOST}' memory='1'/>",
            "</numa></cpu></domain>",
        )
    },
    "many nodes": {
        "xml": filled(
            GUEST + "<cpu><numa><cell memory='1'/></numa></cpu><numatune>",
            lambda n: f"<memnode cellid='{n}' nodeset='{n % MOST},0-{MOST - 1}'/>",
            "</numatune></domain>",
        )
    },
    "many pages": {
        "xml": filled(
            GUEST + "<memoryBacking><hugepages>",
            lambda n: f"<page size='4' nodeset='{n % MOST},0-{MOST - 1}'/>",
            (
                "</hugepages></memoryBacking><cpu><numa><cell cpus='0' "
                "memory='1'/></numa></cpu></domain>"
            ),
        )
    },
    "many functions": {
        "device": filled(
            "<device><capability type='pci'><capability type='virt_functions'>",
            lambda n: f"<address domain='{n}' bus='0' slot='0' function='0'/>",
            "</capability></capability></device>",
        )
    },
    "billion laughs": {
        "xml": (
            '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;"><!ENTITY c '
            '"&b;&b;&b;&b;">]><domain>&c;</domain>'
        )
    },
    "external entity": {
        "xml": (
            "<!DOCTYPE d [<!ENTITY a SYSTEM "
            '"file:///etc/passwd">]><domain><memory>&a;</memory></domain>'
        )
    },
    "open data": {"device": "<device><capability type='vpd'>" * 100000},
    "open serial numbers": {
        "device": "<device><capability type='vpd'>" + "<serial_number>" * 200000 + "</capability>"
    },
    "huge": {"device": "<device>" + " " * LARGEST + "</device>"},
}


def harmed(harm: dict[str, Any]) -> RawCapabilities:
    if "xml" in harm:
        return replace(
            WHOLE,
            domains=(
                *WHOLE.domains,
                DomainAnswer("7b1d5f0e-2a52-4c36-9be0-0d5a9f6a9eff", "bad", "running", harm["xml"]),
            ),
        )
    if "device" in harm:
        return replace(
            WHOLE,
            devices=(*WHOLE.devices, DeviceAnswer("pci_0000_ff_00_0", "computer", harm["device"])),
        )
    return replace(WHOLE, **harm)


@pytest.mark.long
@pytest.mark.parametrize("kind", HARM)
def test_what_was_made_to_harm_takes_no_time_and_nothing_with_it(kind):
    told = harmed(HARM[kind])
    began = time.process_time()
    check(facts(told))
    assert time.process_time() - began < 10
