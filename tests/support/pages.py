"""The code blocks of README and docs: what each one is, and how it is shown to be right.

A block is fenced, or indented by four spaces. A comment on the line before says what is done with it:

``<!-- not run: why -->``
    Nobody runs it. What begins with ``agent`` is parsed all the same.
``<!-- run: tests/file.py -->``, ``<!-- run: tests/file.py::test -->``
    That test runs it, or compares it with what the program has written.
``<!-- file: name -->``
    The commands of the page find it as this file.

Without a comment the language decides. ``console``: the lines after ``$`` run in a folder of the page's own, and the
rest is compared with their output. Indented: each line is a command and runs there too. ``ini``: every option exists.
``python``: it compiles, and its imports work. Any other block needs a comment.
"""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.cli.command import Options, Source
from agent.cli.config_warnings import unknown_options
from agent.cli.configuration import read_configuration
from agent.cli.parser import parse
from agent.errors import UsageError
from tests.support.child import CHECKOUT
from tests.support.system import AgentCommand

PAGES = (
    CHECKOUT / "README.md",
    CHECKOUT / "CONTRIBUTING.md",
    *sorted(path for path in (CHECKOUT / "docs").rglob("*.md") if path.parent.name != "reference"),
    CHECKOUT / "docs" / "reference" / "index.md",
)
COMMENT = re.compile(r"^<!-- (not run|run|file): (.+) -->$")
DIRECTIVE = "{"
STORE = "/var/lib/compute-node-agent"
"""The folder of the store, as pages show it."""
MASKS = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d+\.\d\d s\b"), "N s"),
)
"""What is different in every run."""


@dataclass(frozen=True, slots=True)
class Block:
    """One code block of a page."""

    page: str
    line: int
    """The number of its first line."""
    language: str
    """``indented`` for a block without a fence."""
    text: str
    note: str
    """``run``, ``not run`` or ``file``; empty without a comment."""
    detail: str
    """The reason, the test or the file that the comment names."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands in it, without the output."""
        lines = self.text.splitlines()
        if self.language == "console":
            return [line[2:] for line in lines if line.startswith("$ ")]
        if self.language in ("indented", "bash", "sh"):
            return [line.strip() for line in lines if line.strip()]
        return []

    @property
    def agent_commands(self) -> list[list[str]]:
        """The arguments of each command of the agent in it."""
        found = []
        for command in self.commands:
            words = _words(command)
            if words[:1] == ["agent"]:
                found.append(words[1:])
        return found


def _words(command: str) -> list[str]:
    """The words of one command: up to a comment, a pipe or a redirection."""
    plain = re.split(r"\s(?:#|\||>|&&)\s?", command.replace("$(date +%F)", "today"))[0]
    try:
        return shlex.split(plain)
    except ValueError:
        return []


def blocks(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page, without directives."""
    name = str(page.relative_to(CHECKOUT))
    lines = page.read_text(encoding="utf-8").splitlines()
    note, place = ("", ""), 0
    while place < len(lines):
        line, first = lines[place], place + 1
        if line.lstrip().startswith("```"):
            indent = len(line) - len(line.lstrip())
            language, content = line.strip()[3:].strip(), []
            place += 1
            while lines[place].strip() != "```":
                content.append(lines[place][indent:])
                place += 1
            if not language.startswith(DIRECTIVE):
                yield Block(name, first, language, "\n".join(content), *note)
            note = ("", "")
        elif line.startswith("    ") and (place == 0 or not lines[place - 1].strip() or any(note)):
            content = []
            while place < len(lines) and (lines[place].startswith("    ") or not lines[place]):
                content.append(lines[place][4:])
                place += 1
            place -= 1
            yield Block(name, first, "indented", "\n".join(content).rstrip(), *note)
            note = ("", "")
        elif match := COMMENT.match(line.strip()):
            note = (match[1], match[2])
        elif line.strip():
            note = ("", "")
        place += 1


def check_commands(block: Block) -> None:
    """Fail unless the agent has every command and flag of the block."""
    for arguments in block.agent_commands:
        check_words(arguments)


def check_words(arguments: Sequence[str]) -> None:
    """Fail unless the agent has this command and its flags. A form with ``[`` or ``...`` is not
    looked at, and arguments may be missing.
    """
    if any(re.search(r"[\[|]|\.\.\.|…", word) for word in arguments):
        return
    try:
        parse(arguments)
    except UsageError as error:
        assert "arguments are required" in error.message, f"agent {' '.join(arguments)}: {error}"


def named_commands(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of every ``agent ...`` that the text of a page names."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for code in re.findall(r"`(agent [^`]+)`", text):
        yield _words(code.replace("\\|", "|"))[1:]


def check_note(block: Block) -> None:
    """Fail unless the comment says why, or names a test that exists."""
    if block.note == "not run":
        assert len(block.detail.split()) > 2, f"{block}: say why it is not run"
        return
    file, _, name = block.detail.partition("::")
    assert (CHECKOUT / file).is_file(), f"{block}: there is no {file}"
    assert f"def {name}" in (CHECKOUT / file).read_text(encoding="utf-8"), f"{block}: no {name}"


def check_ini(block: Block, folder: Path) -> None:
    """Fail unless all options of the block exist and can have their values."""
    file = folder / "block.conf"
    file.write_text(block.text + "\n", encoding="utf-8")
    read = read_configuration(Options(sources=(Source(file),)), {})
    assert read.errors == [], f"{block}: {read.errors}"
    unknown = unknown_options(read.conf, complete=False, environ=())
    assert unknown == [], f"{block}: {unknown}"


def check_python(block: Block) -> None:
    """Fail unless the block compiles and its imports work."""
    compile(block.text, str(block), "exec")
    imports = [line for line in block.text.splitlines() if re.match(r"(from|import) ", line)]
    exec("\n".join(imports), {})


class PageSite:
    """A folder in which the commands of one page run, in its order."""

    def __init__(self, folder: Path) -> None:
        self.agent = AgentCommand(folder)
        # Apart from the files of the page, which may be called agent.conf.
        self.agent.config_file = folder / "site.conf"
        self.agent.configure({})

    def run(self, command: str) -> str:
        """Run a command of the agent and return what it writes to both streams.

        :raises AssertionError: it fails, or is no command of the agent.
        """
        words = _words(command)
        assert words[0] == "agent", f"{command}: only agent runs here; say why it is not run"
        arguments = [
            str(self.agent.config_file) if word == "/etc/nova/nova.conf" else word
            for word in words[1:]
        ]
        result = self.agent.run(*arguments, timeout=600)
        assert result.code in (0, 2), result
        return (result.stdout + result.stderr).replace(str(self.agent.store), STORE)

    def check(self, block: Block) -> None:
        """Run all commands of a block, and compare their output with the block if it has any."""
        if block.note == "file":
            (self.agent.folder / block.detail).write_text(block.text + "\n", encoding="utf-8")
        elif block.language == "console":
            shown = self.shown(block)
            assert comparable(shown) == comparable(block.text), f"{block}: it writes\n{shown}"
        else:
            for command in block.commands:
                self.run(command)

    def shown(self, block: Block) -> str:
        """Return the block as it has to be: each command with its output."""
        lines = []
        for command in block.commands:
            lines += [f"$ {command}", *self.run(command).splitlines()]
        return "\n".join(line.rstrip() for line in lines)


def masked(text: str) -> str:
    """Return ``text`` without what is different in every run."""
    for pattern, word in MASKS:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def comparable(text: str) -> list[str]:
    """Return the lines of an output without what is different in every run: Placement answers with
    candidates in no fixed order.
    """
    lines = masked(text).splitlines()
    return sorted(lines) if " candidates " in lines[0] else lines


def rewrite(page: Path, folder: Path) -> None:
    """Run the ``console`` blocks of a page, and put the real output into it."""
    site, text = PageSite(folder), page.read_text(encoding="utf-8")
    for block in blocks(page):
        if not block.note and block.language == "console":
            # By its place, because the same command may be in several blocks.
            fence = f"```console\n{block.text}\n```"
            text = text.replace(fence, f"```console\n{site.shown(block)}\n```", 1)
        elif block.note == "file" or (not block.note and block.language == "indented"):
            site.check(block)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    # python -m tests.support.pages docs/quick-start.md FOLDER
    rewrite(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
