"""The files that the package ships for a host: where the package has each of them, and where each
belongs on the host.
"""

import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

import agent
from agent.errors import ConfigError
from agent.version import DISTRIBUTION

SHARE = f"share/{DISTRIBUTION}"
CONFIGURATION_FOLDER = f"etc/{DISTRIBUTION}"
UNITS = "etc/systemd/system"
UNIT = f"{UNITS}/{DISTRIBUTION}.service"
PACKAGED_UNIT = f"usr/lib/systemd/system/{DISTRIBUTION}.service"
"""Where a package of a distribution has the unit."""
FOLDERS = {CONFIGURATION_FOLDER: 0o750, f"{CONFIGURATION_FOLDER}/agent.conf.d": 0o750}
"""Folders that a host gets, with their modes; those that only hold a file have 0755."""
SHIPPED_COMMANDS = "/usr/bin"
"""The folder of the commands in the units as they are shipped."""
# Without what systemd would read as a specifier, a quote or the end of the command. Its name
# is agent, because the units call that name, and other commands in the same folder.
_COMMAND = re.compile(r"/([A-Za-z0-9._+/-]*/)?agent")


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """One file that the package ships for a host."""

    source: str
    """Its path in a checkout."""
    place: str
    """Its path below the prefix where the package is installed."""
    target: str
    """Its path on a host, below the root folder."""
    mode: int = 0o644
    drop_in: str | None = None
    """The value of ``--drop-in`` that asks for it; None for a file that every host gets."""
    is_configuration: bool = False
    """One that was there before is the operator's, and stays."""
    has_command: bool = False
    """A file for systemd that names a command of the agent."""


def _shared(source: str, target: str, **more: str | int | bool | None) -> ShippedFile:
    return ShippedFile(source, f"{SHARE}/{source}", target, **more)  # type: ignore[arg-type]


def _example(source: str) -> ShippedFile:
    return _shared(source, f"usr/local/{SHARE}/{source}")


def _standard(source: str, place: str) -> ShippedFile:
    """Return a file with a place that other programs define, below any prefix."""
    return ShippedFile(source, place, f"usr/local/{place}")


NOVA_DROP_IN = f"nova-compute.service.d/{DISTRIBUTION}.conf"
SHIPPED_FILES = (
    _shared(f"systemd/{DISTRIBUTION}.service", UNIT, has_command=True),
    _shared(f"systemd/{DISTRIBUTION}.sysusers", f"etc/sysusers.d/{DISTRIBUTION}.conf"),
    _shared(f"systemd/{DISTRIBUTION}.tmpfiles", f"etc/tmpfiles.d/{DISTRIBUTION}.conf"),
    _shared(
        f"systemd/{DISTRIBUTION}.service.d/libvirt.conf",
        f"{UNIT}.d/libvirt.conf",
        drop_in="libvirt",
    ),
    _shared(
        f"systemd/{DISTRIBUTION}.service.d/nova.conf",
        f"{UNIT}.d/nova.conf",
        drop_in="nova",
        has_command=True,
    ),
    _shared(
        f"systemd/{DISTRIBUTION}.service.d/fleet.conf",
        f"{UNIT}.d/fleet.conf",
        drop_in="fleet",
    ),
    _shared(
        f"systemd/{NOVA_DROP_IN}",
        f"{UNITS}/{NOVA_DROP_IN}",
        drop_in="nova-compute",
        has_command=True,
    ),
    _shared(
        "etc/agent.conf.sample",
        f"{CONFIGURATION_FOLDER}/agent.conf",
        mode=0o640,
        is_configuration=True,
    ),
    _example("etc/hosts/nested-cells.yaml"),
    _example("etc/hosts/nested.yaml"),
    _example("etc/hosts/numa.yaml"),
    _example("etc/provider_config/example.yaml"),
    _example("etc/prometheus/compute-node-agent.rules.yaml"),
    _example("etc/grafana/compute-node-agent.json"),
    _standard("docs/man/agent.1", "share/man/man1/agent.1"),
    _standard("docs/man/agent.conf.5", "share/man/man5/agent.conf.5"),
    _standard("etc/completion/bash/agent", "share/bash-completion/completions/agent"),
    _standard("etc/completion/zsh/_agent", "share/zsh/site-functions/_agent"),
    _standard("etc/completion/fish/agent.fish", "share/fish/vendor_completions.d/agent.fish"),
)


def read_shipped(file: ShippedFile, command: PurePosixPath) -> bytes:
    """Return the contents of a shipped file for a host where ``command`` is the agent's command.

    :raises ConfigError: the package was installed without the file.
    """
    for path in _places(file):
        if path.is_file():
            content = path.read_bytes()
            break
    else:
        raise ConfigError(
            f"{DISTRIBUTION} is installed without its file {file.place}",
            "install it again, from its wheel",
        )
    if file.has_command:
        here = f"ExecStart={command.parent}/".encode()
        content = content.replace(f"ExecStart={SHIPPED_COMMANDS}/".encode(), here)
    return content


def _places(file: ShippedFile) -> Iterator[Path]:
    checkout = Path(agent.__file__).parents[1]
    # Asked for the unit, because a folder of another package may have a file of this name.
    if (checkout / SHIPPED_FILES[0].source).is_file():
        yield checkout / file.source
        return
    try:
        installed = distribution(DISTRIBUTION).files or ()
    except PackageNotFoundError:
        installed = ()
    for path in installed:
        if str(path).endswith(f"/{file.place}"):
            yield Path(str(path.locate()))
    yield Path(sys.prefix) / file.place


def installed_command() -> PurePosixPath:
    """Return the path of the command ``agent`` that belongs to this Python."""
    here = Path(sysconfig.get_path("scripts")) / "agent"
    return PurePosixPath(here if here.is_file() else f"{SHIPPED_COMMANDS}/agent")


def is_agent_command(text: str) -> bool:
    """Return whether ``text`` can be the path of the command ``agent`` in a unit."""
    return _COMMAND.fullmatch(text) is not None


def chosen_files(drop_ins: Sequence[str], known: Sequence[str]) -> list[ShippedFile]:
    """Return the files for a host: those that every host gets, those of ``drop_ins``, and those
    whose targets are ``known``, because they were chosen before.
    """
    return [
        file
        for file in SHIPPED_FILES
        if file.drop_in is None or file.drop_in in drop_ins or file.target in known
    ]
