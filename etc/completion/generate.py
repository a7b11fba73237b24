"""Writes the completion scripts of the shells, with shtab, from the parser of the command line."""

import argparse
from pathlib import Path

import shtab

from agent.cli.parser import whole_parser
from agent.conf.options import by_group

FOLDER = Path(__file__).parent
FILES = {"bash": "bash/agent", "zsh": "zsh/_agent", "fish": "fish/agent.fish"}
PATHS = {"FILE": shtab.FILE, "FILE.html": shtab.FILE, "PATH": shtab.FILE, "DIR": shtab.DIRECTORY}


def complete_values(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Have paths, formats and the words after ``help`` completed, of all commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in set(action.choices.values()):
                complete_values(command, sorted(action.choices))
        elif action.metavar in PATHS:
            action.complete = PATHS[action.metavar]
        elif action.dest == "format":
            # The parser knows all formats everywhere, to say where one can be used.
            action.choices = str(action.metavar).strip("{}").split(",")
        elif action.dest == "asked":
            action.choices = words


def script(shell: str) -> str:
    """Return the script of a shell. Options of the configuration are completed before a command."""
    parser = whole_parser()
    complete_values(parser, [])
    for group, options in by_group():
        prefix = f"--{group}-" if group not in (None, "DEFAULT") else "--"
        for option in options:
            parser.add_argument(f"{prefix}{option.name}", help="an option of the configuration")
    return shtab.complete(parser, shell)


if __name__ == "__main__":
    for name, file in FILES.items():
        (FOLDER / file).write_text(script(name))
