"""Guests as text that fits its stream."""

from agent.render.look import Look
from agent.render.records import render_guests

PLAIN = Look()
GUEST = {
    "uuid": "u1",
    "name": "x\nERROR",
    "state": "running",
    "memory_mb": 512,
    "vcpus": None,
    "devices": ["0000:01:00.0"],
    "flavor": "m1\x1b",
    "outcome": "refused",
    "cells": [
        {"host_cell": 0, "pins": {"0": 4}, "emulator": [5]},
        {"host_cell": 1, "pins": {}, "emulator": []},
    ],
    "refusals": [{"reason": "it has a device that is not offered to guests", "remedy": "offer it"}],
}
ERROR = {"code": "node.guests-untold", "message": "nobody knows", "remedy": "see agent status"}


def lines(nodes, look=PLAIN, **given):
    settings = {"from_driver": False, "dry_run": False, **given}
    return render_guests(nodes, look, **settings).splitlines()


def test_a_guest_tells_what_it_has_and_why_it_is_left_out():
    assert lines([{"name": "n1", "uuid": "r1", "guests": [GUEST], "errors": []}]) == [
        "n1  r1",
        r"  x\nERROR  u1  cannot be imported",
        (
            r"    running · 512 MiB memory · cell 0 pinned to 4-5 · cell 1 · devices 0000:01:00.0 "
            r"· "
            r"flavor m1\x1b"
        ),
        "    ✗ it has a device that is not offered to guests",
        "      → offer it",
        "",
        "1 guest, 1 cannot be imported",
    ]


def test_a_node_without_guests_is_another_than_one_of_which_nobody_knows():
    nodes = [
        {"name": "n1", "uuid": None, "guests": [], "errors": []},
        {"name": "n2", "uuid": "r2", "guests": [], "errors": [ERROR]},
    ]
    assert lines(nodes, from_driver=True, dry_run=True) == [
        "the daemon was not asked; this is what the driver reports",
        "",
        "n1",
        "  no guests",
        "",
        "n2  r2",
        "✗ nobody knows [node.guests-untold]",
        "  → see agent status",
        "",
        "0 guests; dry run: nothing was written",
    ]


def test_it_keeps_to_the_width_of_a_terminal_but_for_what_is_to_be_copied():
    shown = lines(
        [{"name": "n1", "uuid": "r1", "guests": [GUEST], "errors": []}],
        Look(width=40, unicode=False),
    )
    assert max(map(len, shown)) <= 40
    assert all(line.isascii() for line in shown)
