import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.inventory import completed
from agent.model.names import printable
from agent.render.json_report import node_document
from agent.render.page import NODES_IN_FULL
from agent.render.page_html import render_page
from agent.render.page_tree import bar_of
from tests.support.page_documents import (
    CLAIM,
    GUEST,
    HOSTILE,
    cell,
    device,
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


# --- one node


def test_the_tree_is_a_tree():
    (root,) = page(node()).nodes[0].roots
    assert root.name == "node-1"
    assert [child.name for child in root.children] == ["node-1_NUMA0", "accelerator"]
    assert [child.owned for child in root.children] == [True, False]


def test_a_tree_without_uuids_yet_has_its_root_first():
    rows = [{**row, "uuid": None, "parent": None} for row in node_document(node_report())["tree"]]
    (root,) = page(node(tree=rows, uuid=None)).nodes[0].roots
    assert [child.name for child in root.children] == ["node-1_NUMA0", "accelerator"]


def test_every_cpu_is_a_square_beside_its_siblings():
    (seen,) = page(node()).nodes[0].machine.cells
    assert [[(cpu.cpu, cpu.use) for cpu in core] for core in seen.cores] == [
        [(0, "shared"), (8, "shared")],
        [(2, "pinned"), (10, "pinned")],
        [(3, "pinned"), (11, "free")],
        [(4, "offline")],
    ]
    assert seen.cores[1][0].text == "dedicated, pinned by instance-1"
    assert seen.cores[1][0].holders == (0,)
    assert [pages["size_kib"] for pages in seen.pages] == [2048]


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
    assert (seen.use, seen.kind) == ("not offered", "PF")
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


def test_a_node_of_which_only_the_tree_is_known():
    bare = node(state=None, driver=None, records=None, guests=[], claims=[], audited_at=None)
    seen = page(bare).nodes[0]
    assert (seen.state, seen.machine, seen.audited) == ("unknown", None, "")
    assert shown(bare).faults() == []


def test_the_page_says_what_would_change_and_what_to_do():
    found = shown(node())
    assert found.faults() == []
    for text in ("create-provider", "remedy", "node-1_NUMA0", "OWNER_NOVA", "PCPU"):
        assert text in found.text
    for one in node_document(node_report())["drift"]:
        assert printable(one["detail"]) in found.texts
        assert not one["remedy"] or printable(one["remedy"]) in found.texts


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


def test_twenty_nodes_are_shown_in_full_and_more_as_a_table():
    few, more = shown(*many(NODES_IN_FULL)), shown(*many(NODES_IN_FULL + 1))
    assert few.packed == []
    assert few.faults() == more.faults() == []
    assert [one["name"] for one in more.details()] == [f"node-{number}" for number in range(21)]
    assert "node-20" in more.texts


def test_the_details_of_a_node_are_all_that_its_own_page_shows():
    found = shown(*[server(number) for number in range(21)]).details()[20]
    assert found["machine"]["cells"][1]["cores"][4][0] == {
        "cpu": 36,
        "use": "pinned",
        "holders": [1],
        "text": "dedicated, pinned by instance-00140001",
    }
    assert found["guests"][1]["allocation"] == [
        "DISK_GB 20, MEMORY_MB 8192 of rack20-server0020",
        "PCPU 4 of rack20-server0020_NUMA1",
    ]
    assert [one["holders"] for one in found["roots"][0]["children"]] == [[0], [1]]
    (card,) = found["machine"]["cells"][0]["devices"]
    assert card["functions"][0]["holder"] == "instance-00140000"


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
    if name:
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
    assert found.details()[0]["roots"][0]["name"] == printable(name)
