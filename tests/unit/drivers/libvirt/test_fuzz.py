"""Whatever libvirt sends: facts come of it, in time, and none is missing without its section being
named.
"""

import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.model.facts import HostFacts
from drivers.libvirt.raw_capabilities import (
    DeviceAnswer,
    DomainAnswer,
    KernelAnswer,
    RawCapabilities,
)
from drivers.libvirt.xml import LARGEST, MOST
from tests.support.libvirt_answers import DEVICES, VPD, answers, domain, facts, fixture

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
