import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.inventory import completed
from agent.model.names import printable
from agent.render.document import remedy_ways
from agent.render.json_report import node_document
from agent.render.page import NODES_IN_FULL, bar_of
from agent.render.page_html import render_page
from tests.support.html_page import (
    CLAIM,
    GUEST,
    HOSTILE,
    cell,
    claim,
    device,
    guest,
    named,
    node,
    page,
    server,
    shown,
)
from tests.unit.render.reports import node as node_report

# --- bars


@pytest.mark.parametrize(
    ("record", "parts", "free"),
    [
        ({"total": 100, "used": 25}, (0.0, 25.0, None), 75),
        ({"total": 100, "reserved": 20, "used": 40}, (20.0, 40.0, None), 40),
        ({"total": 8, "allocation_ratio": 4.0, "used": 16}, (0.0, 50.0, 25.0), 16),
        ({"total": 10, "used": 20}, (0.0, 100.0, None), -10),
        ({"total": 10, "used": None}, (0.0, 0.0, None), None),
    ],
)
def test_a_bar_is_as_long_as_what_can_be_used_and_reserved(record, parts, free):
    bar = bar_of("VCPU", {**completed({**record, "used": None}), "used": record["used"]})
    assert (bar.reserved_part, bar.used_part, bar.total_mark) == parts
    assert bar.free == free
    assert bar.over is (free is not None and free < 0)


def test_only_what_neither_the_records_nor_placement_count_is_free():
    record = {**completed({"total": 8}), "used": 2, "in_placement": 5}
    assert bar_of("VCPU", record).free == 3
    assert bar_of("VCPU", {**record, "used": 6}).free == 2
    assert bar_of("VCPU", {**record, "used": None}).free == 3


# --- one node


def outline(document):
    return [(one.name, one.depth) for one in page(document).nodes[0].providers]


def test_a_tree_without_uuids_yet_has_its_root_first():
    rows = [{**row, "uuid": None, "parent": None} for row in node_document(node_report())["tree"]]
    assert outline(node(tree=rows, uuid=None)) == outline(node())


def test_a_cpu_that_went_offline_under_a_guest_names_the_guest():
    lost = cell(dedicated=[3, 10, 11], degraded=[2], offline=[2])
    records = {"cpu": None, "cells": [lost], "mdevs": [], "problems": []}
    (seen,) = page(node(records=records)).nodes[0].machine.cells
    (square,) = (cpu for core in seen.cores for cpu in core if cpu.cpu == 2)
    assert (square.use, square.text) == ("offline", "offline, pinned by instance-1")


def test_devices_stand_below_their_cards_with_what_holds_them():
    card = device("0000:18:00.0", type="type-PF", serves="nobody", reserved=1)
    devices = [
        card,
        device("0000:18:00.1", parent="0000:18:00.0", holder=CLAIM),
        device("0000:18:00.2", parent="0000:18:00.0", used=True),
        device("0000:18:00.3", parent="0000:18:00.0"),
        device("0000:3b:00.0", type="type-PCI", numa_node=None),
        device("0000:3c:00.0", type="type-PCI", numa_node=7, serves="host"),
        device("0000:3d:00.0", type="type-PCI", numa_node=None, present=False),
    ]
    machine = page(node(devices=devices)).nodes[0].machine
    ((seen,),) = (one.devices for one in machine.cells)
    assert (seen.use, seen.words) == ("not offered", "PF 8086:1515")
    assert [(one.use, one.holder) for one in seen.functions] == [
        ("held", "instance-1"),
        ("to be cleaned", ""),
        ("reserved", ""),
    ]
    assert [one.use for one in machine.devices] == ["free", "host", "gone"]


def test_a_guest_with_a_claim_that_the_hypervisor_does_not_show_is_there():
    (seen,) = page(node(guests=[])).nodes[0].guests
    assert (seen.uuid, seen.state, seen.vcpus) == (GUEST, "not shown by the hypervisor", 2)
    assert "pinned (guest→host) 0→2, 1→10, emulator on 3" in seen.cells[0]


@pytest.mark.parametrize(("guests", "name"), [([guest()], "instance-1"), ([], "")])
def test_a_claim_is_of_a_guest_that_has_a_name_where_the_hypervisor_shows_it(guests, name):
    (seen,) = page(node(guests=guests)).nodes[0].claims
    assert (seen.guest, seen.instance) == (name, GUEST)


def test_a_node_of_which_only_the_tree_is_known():
    bare = node(state=None, driver=None, records=None, guests=[], claims=[], audited_at=None)
    seen = page(bare).nodes[0]
    assert (seen.state, seen.machine, seen.audited) == ("unknown", None, "")
    assert shown(bare).faults() == []


WARNING = {"kind": "x", "severity": "warning", "detail": "d", "remedy": "r", "provider": None}
WELL = {"state": "in-sync", "drift": [], "errors": [], "operations": []}


@pytest.mark.parametrize(
    ("given", "tone"),
    [
        ({}, "good"),
        ({"drift": [{**WARNING, "severity": "info"}]}, "good"),
        ({"drift": [WARNING]}, "warn"),
        ({"errors": [{"code": "x.y", "message": "m", "remedy": ""}]}, "warn"),
        ({"state": "pending"}, "warn"),
        ({"state": "degraded"}, "bad"),
        ({"state": None}, "unknown"),
    ],
)
def test_only_a_state_without_a_warning_is_green(given, tone):
    assert page(node(**{**WELL, **given})).nodes[0].tone == tone


def test_problems_come_first_and_are_counted_at_the_top():
    found = shown(node(drift=[{**WARNING, "severity": "info"}, WARNING, WARNING]))
    headings = [given["id"] for tag, given in found.elements if tag in ("h2", "h3")]
    assert headings[:4] == ["node-0", "node-0-errors", "node-0-drift", "node-0-plan"]
    assert "drift: 2 warnings" in found.texts
    assert "drift: 1 info" in found.texts
    severities = [
        given["class"]
        for tag, given in found.elements
        if tag == "span" and given.get("class", "").startswith("severity")
    ]
    assert severities == ["severity warning"] * 2 + ["severity info"]


def test_each_command_of_a_remedy_is_copied_by_itself():
    remedy = "to move it: openstack server migrate X; if it is gone: agent guests forget X"
    found = shown(node(drift=[{**WARNING, "remedy": remedy}]))
    commands = ["openstack server migrate X", "agent guests forget X"]
    assert [text for text in found.texts if text in commands] == commands
    assert {"to move it:", "if it is gone:"} <= set(found.texts)


def test_what_nobody_counts_is_hatched_with_the_way_to_get_it():
    tree = node_document(node_report())["tree"]
    unknown = [
        {**row, "inventories": {"VCPU": {**completed({"total": 8}), "used": None}}} for row in tree
    ]
    hatched = [
        given for _, given in shown(node(tree=unknown)).elements if "hidden-use" in str(given)
    ]
    # One a bar, and that of the legend.
    assert len(hatched) == len(tree) + 1
    assert "agent --once --with-usages --report FILE" in shown(node(tree=unknown)).texts
    asked = [
        {
            **row,
            "inventories": {"VCPU": {**completed({"total": 8}), "used": None, "in_placement": 3}},
        }
        for row in tree
    ]
    found = shown(node(tree=asked))
    assert "hidden-use" not in str(found.elements)
    assert "in Placement" in found.texts
    assert "agent --once --with-usages --report FILE" not in found.texts


def test_guests_and_cells_call_devices_and_mediated_devices_alike():
    share = {
        "provider": "p",
        "resource_class": "VGPU",
        "count": 1,
        "parent": "0000:41:00.0",
        "type": "nvidia-35",
    }
    held = device("0000:18:00.1", holder=CLAIM)
    claims = [claim(mdevs=[share], devices=[held])]
    source = {**share, "claimed": 1, "total": 4, "numa_node": 0}
    records = {"cpu": None, "cells": [cell()], "mdevs": [source], "problems": []}
    found = page(node(claims=claims, devices=[held], records=records)).nodes[0]
    (cell_here,), (guest_here,) = found.machine.cells, found.guests
    assert [(one.address, one.words) for one in cell_here.devices] == [
        ("0000:18:00.1", "VF 8086:1515"),
        ("0000:41:00.0", "mediated nvidia-35"),
    ]
    assert guest_here.devices == ("0000:18:00.1 VF 8086:1515", "0000:41:00.0 mediated nvidia-35")
    assert cell_here.devices[1].holder == "1 of 4 held by instance-1"
    assert cell_here.devices[1].holders == (0,)


def luminance(color):
    parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(
    ("one", "other", "least"),
    [
        ("ink", "ground", 7.0),
        ("dim", "raised", 4.5),
        ("link", "raised", 4.5),
        *((tone, "raised", 4.5) for tone in ("good", "warn", "bad")),
        ("edge", "ground", 3.0),
        ("used", "free", 4.5),
        ("reserved", "free", 3.0),
        ("mark", "free", 7.0),
        ("free", "ground", 1.2),
        ("shared-ink", "shared-ground", 4.5),
        ("pinned-ink", "pinned-ground", 4.5),
        ("off-ink", "off-ground", 4.5),
    ],
)
def test_the_dark_page_has_the_contrast_of_the_light_one(one, other, least):
    light, dark, *_ = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part))
        for part in shown(node()).style.split("prefers-color-scheme: dark")
    )
    for colors in (light, dark):
        low, high = sorted((luminance(colors[one]), luminance(colors[other])))
        assert (high + 0.05) / (low + 0.05) >= least


def test_nothing_is_requested_and_only_the_pages_own_script_and_style_run():
    found = shown(node())
    digests = [
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in (found.style, found.scripts[""])
    ]
    assert found.policy == (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; "
        f"script-src 'sha256-{digests[1]}'; base-uri 'none'; form-action 'none'"
    )
    assert {"link", "img", "iframe", "object", "embed", "base"}.isdisjoint(found.tags)


# --- many nodes


def many(count, **given):
    return [node(f"node-{number}", **given) for number in range(count)]


def test_totals_are_unknown_where_one_node_does_not_tell():
    sums = {name: (used, room) for name, used, room in page(*many(3)).totals}
    for name, (used, _) in sums.items():
        bars = [bar for bar in page(node()).totals if bar[0] == name]
        assert used == (None if bars[0][1] is None else 3 * bars[0][1])
        assert sums[name][1] == 3 * bars[0][2]


def test_a_node_among_many_weighs_less_than_a_kilobyte():
    found = render_page(page(*[server(number) for number in range(200)]))
    assert len(found.encode()) < 200_000


# --- names from outside

NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=200))


PLAIN_TAGS = [tag for tag, _ in shown(named("plain"), placement="plain").elements]


@given(NAMES)
def test_names_are_text_and_never_markup(name):
    found = shown(named(name), placement=name)
    assert found.faults() == []
    # What is a command in a remedy has an element of its own.
    if name and not any(command for _, command in remedy_ways(name)):
        assert [tag for tag, _ in found.elements] == PLAIN_TAGS
    assert found.texts.count(printable(name)) >= (10 if name.strip() else 0)
    assert name not in HOSTILE or name == printable(name) or name not in found.text


@given(NAMES)
def test_names_in_the_details_of_many_nodes_are_data(name):
    found = shown(*[named(name)] * (NODES_IN_FULL + 1))
    assert set(found.scripts) == {""}
    assert found.faults() == []
    (packed,) = found.packed
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", packed)
    assert found.details()[0]["providers"][0]["name"] == printable(name)
