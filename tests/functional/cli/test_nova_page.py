"""Every command of the pages on hosts of nova-compute that can run without a cloud runs, in the order
of the pages, on one such host: beside nova-compute, inside it, instead of it, and back.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.cli.test_takeover_undo import ROOT, Site
from tests.support.child import CHECKOUT
from tests.support.http_placement import HttpPlacement

PAGES = [CHECKOUT / "docs" / name for name in ("nova.md", "inside-nova-compute.md", "take-over.md")]
NOVAS_FILE = "/etc/nova/nova.conf"
NOT_RUN = {
    "openstack": "it needs the APIs of a cloud",
    "nova-manage": "it needs nova's database",
    "systemctl": "it needs a systemd with these units",
    "tox": "it runs other tests",
    "agent-nova-compute": "tests/functional/nova/test_inside.py runs what it starts",
    "nova-compute": "it needs a cloud",
    "mv": "it is no command of the agent",
    "pip": "it would install the agent from PyPI",
    **dict.fromkeys(
        ("mkdir", "cp", "rm"),
        "it changes this machine; tests/functional/test_systemd_unit.py has the drop-in",
    ),
}
"""Why commands are not run, by their first words."""
WITH_ARGUMENTS = frozenset({"agent claim create", "agent migrate", "agent guests forget"})
"""Commands that the page only names, without their arguments."""


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a page: indented lines, and code in the text that begins with a
    program's name.
    """
    for line in text.splitlines():
        if line.startswith("    ") and not line.strip().startswith("["):
            yield line.strip()
            continue
        for code in re.findall(r"`([^`]+)`", line):
            if code.partition(" ")[0] in {"agent", *NOT_RUN} and " " in code:
                yield code


def programs() -> list[str]:
    return [command for page in PAGES for command in commands(page.read_text(encoding="utf-8"))]


def test_every_command_is_run_or_has_a_reason_not_to_be() -> None:
    first = {command.partition(" ")[0] for command in programs()}
    assert first - {"agent"} <= NOT_RUN.keys()
    assert "agent" in first


@pytest.mark.long
def test_the_commands_of_the_pages_run_in_their_order(
    tmp_path: Path, http_placement: HttpPlacement
) -> None:
    site = Site(tmp_path, http_placement)
    before = site.as_nova_has_it()
    site.configure()
    ran = []
    for command in programs():
        words = shlex.split(command.partition(" > ")[0])
        if words[0] != "agent" or command in WITH_ARGUMENTS:
            continue
        arguments = [
            str(site.agent.config_file) if word == NOVAS_FILE else word for word in words[1:]
        ]
        result = site.agent.run(*arguments)
        # What is pending, missing or to be told is no failure of the command; 1 is the verdict of
        # the check before the guests are imported, and of a plug-in.
        judges = "check" in words or "nagios" in words
        assert result.code in ((0, 1, 2) if judges else (0,)), result
        ran.append(
            " ".join(word for word in words[1:] if word not in ("--config-file", NOVAS_FILE))
        )
        if ran[-1] == "--once --adopt":
            assert site.content() != before
    assert {"--once --observe", "takeover check", "--once --adopt", "takeover undo --yes"} <= {*ran}
    assert site.content() == before
    assert site.agent.run("takeover", "undo", "--format", "json").json["nodes"] == []
    assert ROOT in http_placement.dump()["providers"]
