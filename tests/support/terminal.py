"""What the agent writes to a terminal, and a picture of it."""

import io
import os
import pty
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.support.child import CHECKOUT
from tests.support.pages import PageSite, blocks
from tests.support.system import AgentCommand

QUICK_START = CHECKOUT / "docs" / "quick-start.md"
PICTURE = CHECKOUT / "docs" / "picture.svg"
COMMAND = ("--config-file", "agent.conf", "--once")
"""The first command of the quick start."""
WIDTH = 100


def on_a_terminal(agent: AgentCommand, *arguments: str, **env: str) -> str:
    """What the agent writes to a terminal of 100 columns."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "agent", "--config-file", str(agent.config_file), *arguments]
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")
    }
    environment = {
        **kept,
        "HOME": str(agent.folder),
        "PYTHONPATH": str(CHECKOUT),
        "TERM": "xterm-256color",
        "COLUMNS": "100",
        "NO_PROXY": "*",
        **env,
    }
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=agent.folder
    ):
        os.close(slave)
        written = b""
        while True:
            try:
                read = os.read(master, 65536)
            except OSError:
                break
            if not read:
                break
            written += read
    os.close(master)
    return written.decode()


def picture_output(folder: Path) -> str:
    """What the picture shows: the first command of the quick start, on a terminal, from the node on."""
    site = PageSite(folder)
    for block in blocks(QUICK_START):
        if block.note == "file":
            site.check(block)
    written = on_a_terminal(site.agent, *COMMAND).replace("\r\n", "\n")
    # The first line has the path of the store, and is as long as that.
    return written.partition("\n\n")[2]


def draw(written: str) -> str:
    """Return the SVG of what was written to a terminal."""
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor"
    )
    console.print(Text("$ agent --config-file agent.conf --once", "bold"))
    console.print(Text.from_ansi(written))
    svg = console.export_svg(title="agent --once", unique_id="picture")
    # Fonts come from the reader's machine, because a picture must not ask the network for any.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def text_of(svg: str) -> str:
    """Return the text of a picture, line by line."""
    lines: dict[str, str] = {}
    for line, text in re.findall(
        r'<text class="picture-r\d+"[^>]*clip-path="url\(#picture-line-(\d+)\)">(.*?)</text>', svg
    ):
        lines[line] = lines.get(line, "") + unescape(text)
    return "\n".join(lines[line].replace("\xa0", " ").rstrip() for line in sorted(lines, key=int))


if __name__ == "__main__":
    # python -m tests.support.terminal FOLDER
    PICTURE.write_text(draw(picture_output(Path(sys.argv[1]).resolve())), encoding="utf-8")
