"""The page in headless Chromium: what it shows, what it requests, and whom it leaves out."""

import pytest

from agent.model.names import printable
from agent.render.page_html import render_page
from tests.functional.cli.setups import merged, numa_host, on
from tests.support.html_page import (
    HOSTILE,
    NARROW,
    WIDE,
    browser_here,
    named,
    node,
    opened,
    page,
    server,
)
from tests.support.recordings import RECORDINGS, enable_virtual_functions, of_each, sysfs_root
from tests.support.system import AgentHere

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("browser")]

LOOKS = [(scheme, size) for scheme in ("light", "dark") for size in (WIDE, NARROW)]


@pytest.fixture(scope="module")
def browser():
    with browser_here() as found:
        yield found


@pytest.fixture
def written(tmp_path):
    """Writes the page of documents; returns its file."""

    def write(*nodes):
        file = tmp_path / "page.html"
        file.write_text(render_page(page(*nodes)), encoding="utf-8", errors="backslashreplace")
        return file

    return write


@pytest.fixture(scope="module")
def five_thousand(tmp_path_factory):
    """The page of as many nodes with 64 CPUs and two guests each."""
    file = tmp_path_factory.mktemp("many") / "page.html"
    file.write_text(render_page(page(*map(server, range(5000)))), encoding="utf-8")
    return file


@pytest.mark.parametrize(("scheme", "size"), LOOKS)
def test_the_page_of_a_host_with_guests_and_devices(
    http_placement, tmp_path, browser, scheme, size
):
    agent = numa_host(http_placement, tmp_path)
    assert agent.run("--once").code == 0
    assert agent.run("guests", "import").code == 0
    assert agent.run("--once", "--report", "nodes.html").code == 0
    with opened(browser, tmp_path / "nodes.html", size, scheme) as found:
        found.check()
        assert found.page.locator(".cpu[data-guests]").count() == 16
        guest = found.page.locator("[data-guest='1']")
        guest.focus()
        assert found.page.locator(".cpu.lit").all_inner_texts() != []
        assert all(
            text.startswith(("2", "3", "10"))
            for text in found.page.locator(".cpu.lit").all_inner_texts()
        )
        found.page.locator("h1").hover()
        found.page.evaluate("document.activeElement.blur()")
        assert found.page.locator(".lit").count() == 0
        # Nothing is wider than the window.
        assert found.page.evaluate("document.documentElement.scrollWidth") <= size[0]


@pytest.mark.parametrize("name", of_each(one for one in RECORDINGS if one.startswith("32intel64-")))
def test_the_page_of_a_recording(http_placement, tmp_path, browser, name):
    root = sysfs_root(name, tmp_path / "recording")
    enable_virtual_functions(root, "0000:60:00.0", 4, "37cd")
    agent = AgentHere(tmp_path)
    agent.configure(
        merged(
            on(http_placement, "host", {"host": {"sysfs_root": root}}),
            {
                "compute": {
                    "tree_layout": "nested",
                    "cpu_shared_set": "0-3,16-31",
                    "cpu_dedicated_set": "4-15",
                },
                "pci": {"device_spec": '{"vendor_id": "8086", "product_id": "37cd"}'},
            },
        )
    )
    assert agent.run("--once", "--report", "nodes.html").code == 0
    with opened(browser, tmp_path / "nodes.html") as found:
        found.check()
        assert found.page.locator(".cpu[data-guests]").count() == 32
        assert found.page.locator(".device .device").count() == 4


CHANGED = node("node-1", operations=[{**one, "status": "done"} for one in node()["operations"]])


@pytest.mark.parametrize(
    "document",
    [node("node-1", hint="allocations were not judged"), CHANGED, server(7)],
    ids=["planned", "changed", "nothing to do"],
)
def test_a_node_among_many_is_shown_as_on_its_own_page(written, browser, document):
    with opened(browser, written(document)) as found:
        alone = found.elements("article")
    with opened(browser, written(*map(server, range(100, 120)), document)) as found:
        found.page.get_by_role("button", name=document["name"], exact=True).click()
        found.page.wait_for_selector("#node article")
        found.check()
        elements, text = found.elements("#node article")
        for _, attributes in elements:
            attributes |= {
                key: value.replace("node-20", "node-0") for key, value in attributes.items()
            }
        assert (elements, text) == tuple(alone)
        assert found.page.evaluate("document.activeElement.id") == "node-20"


def test_five_thousand_nodes_open_at_once_and_can_be_searched_and_sorted(five_thousand, browser):
    assert five_thousand.stat().st_size < 6_000_000
    with opened(browser, five_thousand) as found:
        work = found.work()
        # The nodes are there, and what shows one of them is made when it is asked for; nothing is laid out row by row.
        assert work["Nodes"] < 20 * 5000
        assert work["LayoutCount"] < 100
        rows = found.page.locator("#table tbody tr:visible")
        assert rows.count() == 5000
        found.page.get_by_label("Search name or state").fill("DEGRADED")
        assert found.page.get_by_role("status").inner_text() == "52 nodes"
        found.page.get_by_label("Search name or state").fill("rack7-")
        found.page.get_by_role("button", name="node", exact=True).press("Enter")
        assert rows.first.inner_text().startswith("rack7-server0007")
        rows.nth(1).get_by_role("button").press("Enter")
        found.page.wait_for_selector("#node article")
        assert found.page.locator("#node h2 bdi").inner_text() == "rack7-server0047"
        assert found.page.locator("#node .cpu[data-guests]").count() == 64
        # What axe says of such a page, it says of one of twenty nodes too.
        assert found.messages == []


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_stay_text(written, browser, name, several):
    with opened(browser, written(*[named(name)] * (21 if several else 1))) as found:
        if several:
            found.page.locator("#table tbody button").first.click()
            found.page.wait_for_selector("#node article")
        assert found.messages == []
        assert found.page.locator("img, b, main script").count() == 0
        heading = found.page.locator("h2 bdi" if not several else "#node h2 bdi")
        assert heading.text_content() == printable(name)
        assert found.page.evaluate("document.documentElement.scrollWidth") <= WIDE[0]


def test_paper_gets_everything_that_is_shown(written, browser):
    with opened(browser, written(*map(server, range(100, 121)))) as found:
        found.page.locator("#table tbody button").first.click()
        found.page.wait_for_selector("#node article")
        found.page.emulate_media(media="print")
        assert not found.page.get_by_label("Search name or state").is_visible()
        assert (
            found.page.evaluate("getComputedStyle(document.querySelector('.list')).maxHeight")
            == "none"
        )
        assert found.page.pdf(format="A4").startswith(b"%PDF-")
