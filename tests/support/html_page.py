"""A page as a browser's parser sees it: its elements, its text, and what would be wrong with it."""

import base64
import gzip
import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from agent.model.inventory import completed
from agent.render.json_report import node_document
from agent.render.page import page_of
from agent.render.page_html import render_page
from tests.support import backends
from tests.unit.render.reports import node as node_report

LEADS = {"src", "href", "action", "srcset", "data", "poster", "formaction", "background", "style"}


class HtmlPage(HTMLParser):
    """A parsed page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.scripts: dict[str, str] = {}
        self.packed: list[str] = []
        self.style = ""
        self._inside = ""
        self._id = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.append((tag, given))
        if tag in ("script", "style"):
            self._inside, self._id = tag, given.get("id", "")
            if given.get("type") == "application/gzip":
                self._inside = "packed"
                self.packed.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside or (tag == "script" and self._inside == "packed"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[self._id] = self.scripts.get(self._id, "") + data
        elif self._inside == "packed":
            self.packed[-1] += data
        elif self._inside == "style":
            self.style += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All text that is shown."""
        return "\n".join(self.texts)

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    @property
    def policy(self) -> str:
        """The Content-Security-Policy."""
        (found,) = (
            given["content"]
            for tag, given in self.elements
            if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy"
        )
        return found

    def details(self) -> Any:
        """The details of many nodes."""
        return [
            node
            for part in self.packed
            for node in json.loads(gzip.decompress(base64.b64decode(part, validate=True)))
        ]

    def faults(self) -> list[str]:
        """What is wrong with the page: requests, code in attributes, ids, headings."""
        found = [
            f"{tag} {name}={value}"
            for tag, given in self.elements
            for name, value in given.items()
            if (name in LEADS and not value.startswith("#")) or name.startswith("on")
        ]
        ids = [given["id"] for _, given in self.elements if "id" in given]
        found += [f"id {one} twice" for one in set(ids) if ids.count(one) > 1]
        for _, given in self.elements:
            for name in ("href", "for", "aria-labelledby"):
                if name in given and given[name].removeprefix("#") not in ids:
                    found.append(f"{name} {given[name]} leads nowhere")
        level = 0
        for tag, _ in self.elements:
            if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
                found += [f"{tag} after h{level}"] if int(tag[1]) > level + 1 else []
                level = int(tag[1])
        if level == 0 or sum(tag == "h1" for tag, _ in self.elements) != 1:
            found.append("not one h1")
        if "@import" in self.style or "url(" in self.style:
            found.append("the style requests something")
        return found


# ---
# Documents of nodes from which pages are made: of one node with whatever a page shows, with hostile
# names, and of thousands of nodes.


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


# ---
# A headless Chromium that opens pages from files, and what it has to say of them.
#
# Playwright drives it, because it needs no second package of Debian's, and because a package of PyPI
# that is kept brings axe's rules for it.


backends.require(
    "playwright.sync_api",
    "axe_playwright_python.sync_playwright",
    remedy="apt-get install chromium, and make test again",
)
from axe_playwright_python.sync_playwright import Axe  # noqa: E402
from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

# Playwright's own flags keep Chromium from a first run, updates and requests in the background.
FLAGS = ("--disable-gpu", "--disable-quic", "--disable-sync", "--no-first-run")
SERIOUS = ("serious", "critical")
WIDE, NARROW = (1400, 900), (390, 844)


@contextmanager
def browser_here() -> Iterator[Browser]:
    """Chromium with a new, empty profile, which ends with the context."""
    program = shutil.which("chromium")
    if program is None:
        backends.missing("Chromium", "apt-get install chromium")
    with sync_playwright() as playwright:
        # Root has no sandbox; the pages are our own.
        browser = playwright.chromium.launch(
            executable_path=program, args=list(FLAGS), chromium_sandbox=False
        )
        try:
            yield browser
        finally:
            browser.close()


class OpenPage:
    """A page that is open."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page, self._address = page, file.as_uri()
        self.messages: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")
        page.goto(self._address)

    def check(self) -> None:
        """Nothing was requested but the page, nothing failed, and nobody is left out."""
        assert self.messages == []
        assert [url for url in self.requests if url != self._address] == []
        assert self.barriers() == []

    def barriers(self) -> list[str]:
        """What axe finds that keeps people from using the page."""
        return [
            f"{found['id']}: {node['html'][:200]} {node['failureSummary']}"
            for found in Axe().run(self.page).response["violations"]
            if found["impact"] in SERIOUS
            for node in found["nodes"][:3]
        ]

    def work(self) -> Mapping[str, float]:
        """What the browser has done so far, by its names: Nodes, LayoutCount and others."""
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in metrics}

    def elements(self, selector: str) -> Any:
        """The element and all elements in it, with their attributes; and their text without
        spaces.
        """
        return self.page.eval_on_selector(
            selector,
            """top => [[top, ...top.querySelectorAll("*")].map(element =>
                [element.localName, Object.fromEntries([...element.attributes].map(one => [one.name, one.value]))]),
                top.textContent.replace(/\\s+/g, "")]""",
        )


@contextmanager
def opened(
    browser: Browser, file: Path, size: tuple[int, int] = WIDE, scheme: Any = "light"
) -> Iterator[OpenPage]:
    """The page of a file, open in a window of that size (pixels) and colour scheme."""
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, offline=True
    )
    try:
        yield OpenPage(page, file)
    finally:
        page.close()
