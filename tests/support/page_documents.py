"""Documents of nodes from which pages are made: of one node with whatever a page shows, with hostile names, and of thousands of nodes."""

import uuid

from agent.model.inventory import completed
from agent.render.json_report import node_document
from agent.render.page import page_of
from agent.render.page_html import render_page
from tests.support.html_page import HtmlPage
from tests.unit.render.reports import node as node_report

GUEST = "3d7b8f52-9d0c-4f5e-8c39-5e0b6a7c1a11"
CLAIM = "5410daac-3ea3-580c-9c43-10a7abcf001c"
HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"'><b onclick='x'>",
    "<!--<script>",
    "\u202egnp.exe",
    "שלום",
    "n" * 200,
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;",
    "\ud800\x00\x1b[31m\n",
]


def placed(host_cell=0, pins=None, emulator=()):
    return {
        "host_cell": host_cell,
        "memory_mb": 2048,
        "page_size_kib": 2048,
        "shared": [],
        "pins": pins or {},
        "emulator": list(emulator),
    }


def claim(**given):
    return {
        "id": CLAIM,
        "instance": GUEST,
        "purpose": "instance",
        "half": "only",
        "state": "held",
        "amounts": {"vcpus": 2, "memory_mb": 2048, "disk_mb": 0},
        "cells": [placed(pins={"0": 2, "1": 10}, emulator=[3])],
        "devices": [],
        "created_at": 1.8e9,
        **given,
    }


def cell(**given):
    return {
        "id": 0,
        "memory_mb": 32768,
        "memory_mb_used": 2048,
        "shared": [0, 8],
        "shared_used": 0,
        "dedicated": [2, 3, 10, 11],
        "pinned": [2, 3, 10],
        "degraded": [],
        "offline": [4],
        "siblings": [[0, 8], [2, 10], [3, 11]],
        "pages": [
            {"size_kib": 4, "total": 100, "used": 0, "reserved": 0},
            {"size_kib": 2048, "total": 4096, "used": 1024, "reserved": 2},
        ],
        **given,
    }


def device(address, **given):
    return {
        "address": address,
        "type": "type-VF",
        "vendor_id": "8086",
        "product_id": "1515",
        "parent": None,
        "numa_node": 0,
        "serves": "guests",
        "holder": None,
        "present": True,
        "used": False,
        "reserved": 0,
        **given,
    }


def guest(**given):
    return {
        "uuid": GUEST,
        "name": "instance-1",
        "state": "running",
        "vcpus": 2,
        "memory_mb": 2048,
        "cells": [],
        "devices": [],
        "flavor": None,
        "outcome": "known",
        "refusals": [],
        **given,
    }


def node(name=None, **given):
    document = {
        **node_document(node_report()),
        "audited_at": 1.8e9,
        "last_good_audit_at": None,
        "records": {"cpu": None, "cells": [cell()], "mdevs": [], "problems": []},
        "guests": [guest()],
        "claims": [claim()],
        "migrations": [],
        "devices": [],
        "allocations": {},
        **given,
    }
    return document if name is None else {**document, "name": name}


def page(*nodes, **given):
    return page_of(nodes, **{"source": "audit", "made_at": 1.8e9, "version": "1", **given})


def shown(*nodes, **given):
    return HtmlPage(render_page(page(*nodes, **given)))


INVENTORY = {**completed({"total": 8}), "used": 1}


def named(name):
    """A node with ``name`` in every text that comes from outside."""
    document = node(name)
    return {
        **document,
        "tree": [
            {
                **row,
                "name": name,
                "traits": [name],
                "aggregates": [name],
                "inventories": dict.fromkeys([name], INVENTORY),
            }
            for row in document["tree"]
        ],
        "operations": [
            {**one, "reason": name, "error": name, "before": {name: name}, "after": [name]}
            for one in document["operations"]
        ],
        "drift": [{**one, "detail": name, "remedy": name} for one in document["drift"]],
        "errors": [{"code": "x", "message": name, "remedy": name}],
        "guests": [
            guest(name=name, flavor=name, refusals=[{"reason": name, "remedy": name}], cells=[])
        ],
        "devices": [device(name), device("0000:00:01.0", vendor_id=name)],
        "records": {
            "cpu": {"architecture": name, "vendor": name, "model": name},
            "cells": [cell()],
            "mdevs": [{"parent": name, "type": name, "claimed": 0, "total": 1, "numa_node": 0}],
            "problems": [name],
        },
    }


# --- thousands of nodes


def uuid_of(*parts):
    """A uuid that is the same in every run."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, ".".join(map(str, parts))))


def server(number):
    """A node of two cells with 64 CPUs, a card with functions, and two guests that hold of them."""
    name = f"rack{number % 40}-server{number:04}"
    root, *cells = (uuid_of(name, part) for part in ("root", 0, 1))
    guests = [uuid_of(name, "guest", one) for one in range(2)]
    claims = [uuid_of(name, "claim", one) for one in range(2)]
    pins = [{str(cpu): 32 * one + 4 + cpu for cpu in range(4)} for one in range(2)]
    held = [[{**placed(one, pins[one]), "memory_mb": 8192}] for one in range(2)]
    card = f"0000:{number % 200:02x}:00.0"
    functions = [
        device(f"{card[:-1]}{one + 1}", parent=card, holder=claims[0] if one == 0 else None)
        for one in range(4)
    ]
    return {
        **node(name),
        "uuid": root,
        "state": "degraded" if number % 97 == 0 else "in-sync",
        "errors": [{"code": "x.y", "message": f"{name} is odd", "remedy": "agent drift"}]
        if number % 97 == 0
        else [],
        "operations": [],
        "drift": [],
        "tree": [
            row(name, root, None, {"MEMORY_MB": (262144, 16384), "DISK_GB": (2000, 40)}),
            *(
                row(f"{name}_NUMA{one}", cells[one], root, {"VCPU": (4, 0), "PCPU": (28, 4)})
                for one in range(2)
            ),
        ],
        "records": {
            "cpu": {"architecture": "x86_64", "vendor": "Intel", "model": "Icelake-Server"},
            "cells": [many_cpus(one, pins[one]) for one in range(2)],
            "mdevs": [],
            "problems": [],
        },
        "guests": [
            guest(
                uuid=guests[one],
                name=f"instance-{number:04x}{one:04x}",
                vcpus=4,
                memory_mb=8192,
                cells=held[one],
            )
            for one in range(2)
        ],
        "claims": [
            claim(
                id=claims[one],
                instance=guests[one],
                state="consumed",
                cells=held[one],
                created_at=1.8e9 + number,
            )
            for one in range(2)
        ],
        "devices": [device(card, type="type-PF", serves="nobody"), *functions],
        "allocations": {
            guests[one]: {root: {"MEMORY_MB": 8192, "DISK_GB": 20}, cells[one]: {"PCPU": 4}}
            for one in range(2)
        },
    }


def row(name, uuid, parent, amounts):
    """A provider with total and used amounts."""
    return {
        "uuid": uuid,
        "name": name,
        "parent": parent,
        "generation": 7,
        "inventories": {
            one: {**completed({"total": total}), "used": used}
            for one, (total, used) in amounts.items()
        },
        "traits": ["COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_NUMA_ROOT"],
        "aggregates": [],
        "owned": True,
    }


def many_cpus(number, pins):
    """A cell of 16 cores with two threads each."""
    first = 32 * number
    return cell(
        id=number,
        memory_mb=131072,
        shared=list(range(first, first + 4)),
        dedicated=list(range(first + 4, first + 32)),
        pinned=sorted(pins.values()),
        offline=[],
        siblings=[[first + core, first + 16 + core] for core in range(16)],
    )
