"""Writes oslo.config files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

Value = str | int | float | bool | Path | Sequence[str]
Config = Mapping[str, Mapping[str, Value]]
"""``{group: {option: value}}``; a list of strings is an option given several times."""


def write_config(path: Path, config: Config) -> Path:
    """Write ``config`` to ``path``, making its folder; the path."""
    lines = []
    for group, options in config.items():
        lines.append(f"[{group}]")
        for option, value in options.items():
            values = (
                value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
            )
            lines += [f"{option} = {_escaped(each)}" for each in values]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    # It may hold a password.
    path.chmod(0o600)
    return path


def _escaped(value: object) -> str:
    # oslo.config would take a dollar sign for the start of another option's name
    return str(value).replace("$", "$$")
