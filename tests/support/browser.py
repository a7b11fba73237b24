"""A headless Chromium that opens pages from files, and what it has to say of them.

Playwright drives it, because it needs no second package of Debian's, and because a package of PyPI
that is kept brings axe's rules for it.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import backends

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
        # Seconds of the page's thread, so that other work on the machine does not count.
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
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

    def seconds(self) -> float:
        """What opening the page has cost so far, in seconds of its thread."""
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        named: Mapping[str, float] = {one["name"]: one["value"] for one in metrics}
        return named["TaskDuration"]

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
