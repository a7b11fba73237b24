"""``agent setup``: shows which files it puts where, or takes away, and does it with ``--yes``."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from oslo_config import cfg

from agent.cli.command import Options
from agent.cli.commands.setup.manifest import read_manifest
from agent.cli.commands.setup.root_folder import RootFolder
from agent.cli.commands.setup.shipped import (
    CONFIGURATION_FOLDER,
    UNIT,
    chosen_files,
    installed_command,
    is_agent_command,
)
from agent.cli.commands.setup.steps import (
    SetupAction,
    SetupStep,
    carry_out,
    carry_out_removal,
    plan_setup,
    plan_setup_removal,
)
from agent.cli.output import write, write_document
from agent.errors import ConfigError
from agent.model.names import number_of, printable
from agent.render.look import look_of
from agent.version import DISTRIBUTION

SCHEMA = "compute-node-agent/setup/1"
SIGNS: Mapping[SetupAction, str] = {
    "write": "+",
    "replace": "~",
    "remove": "-",
    "keep": "!",
    "none": "=",
}
HIDDEN_FOLDERS = ("/home", "/root", "/run/user")
"""Folders that ``ProtectHome=`` hides from the service."""


def set_up_host(_conf: cfg.ConfigOpts, options: Options) -> int:
    """Put the files of the service in place below ``--root``, or with ``--remove`` take away those
    that are as they were put there. Without ``--yes`` only the steps are shown. Return the exit
    code.

    :raises ConfigError: everything that is in the way; nothing is written then.
    """
    arguments = options.arguments
    remove, carries_out = arguments["remove"], arguments["yes"] and not options.dry_run
    _check_command(arguments["command"])
    root = RootFolder(Path(arguments["root"] or "/"))
    manifest = read_manifest(root)
    chosen = arguments["command"] or manifest.command
    command = PurePosixPath(chosen or installed_command())
    if remove:
        steps = plan_setup_removal(root, manifest)
    else:
        files = chosen_files(arguments["drop_in"], list(manifest.files))
        steps = plan_setup(root, manifest, files, command)
    if carries_out and remove:
        carry_out_removal(root, manifest, steps)
    elif carries_out:
        carry_out(root, manifest, steps, chosen)
    following = list(_next(root, steps, remove=remove)) if carries_out else []
    if options.as_document:
        document = {
            "schema": SCHEMA,
            "root": str(root.path("")),
            "remove": remove,
            "carried_out": carries_out,
            "command": str(command),
            "files": [
                {"path": f"/{step.target}", "action": step.action, "reason": step.reason}
                for step in steps
            ],
            "next": following,
        }
        write_document({**document, "errors": [], "exit_code": 0}, options)
    else:
        lines = _lines(root, steps, command, carries_out=carries_out, remove=remove)
        write("".join(f"{line}\n" for line in (*lines, *_next_lines(following))))
    return 0


def _check_command(command: str | None) -> None:
    if command is not None and not is_agent_command(command):
        raise ConfigError(
            f"--command {printable(command)}: not the absolute path of agent",
            "give the path of agent on the host; it ends with /agent, without spaces and quotes",
        )


def _lines(
    root: RootFolder,
    steps: Sequence[SetupStep],
    command: PurePosixPath,
    *,
    carries_out: bool,
    remove: bool,
) -> Iterator[str]:
    reason = look_of(sys.stdout).signs.reason
    for step in steps:
        why = f" {reason} {step.reason}" if step.reason else ""
        yield f"{SIGNS[step.action]} {printable(str(root.path(step.target)))}{why}"
    changes = sum(step.action in ("write", "replace", "remove") for step in steps)
    if not steps:
        yield f"agent setup wrote nothing below {printable(str(root.path('')))}"
    elif not changes:
        yield "nothing to do"
    elif carries_out:
        yield f"{number_of(changes, 'file')} {'removed' if remove else 'changed'}"
    else:
        yield f"{number_of(changes, 'file')} to change; nothing was done yet: add --yes"
    if not remove and str(command).startswith(tuple(f"{name}/" for name in HIDDEN_FOLDERS)):
        yield (
            f"! {printable(str(command))}: the unit hides this folder from the service; install "
            "the agent below /opt, or give another path with --command"
        )


def _next(root: RootFolder, steps: Sequence[SetupStep], *, remove: bool) -> Iterator[str]:
    """Yield the commands that a person runs next, on this host."""
    if not root.is_host or all(step.action in ("none", "keep") for step in steps):
        return
    if remove:
        yield "systemctl daemon-reload"
        yield f"userdel {DISTRIBUTION}; rm -r /var/lib/{DISTRIBUTION}  # the user, and its store"
        return
    yield "systemd-sysusers && systemd-tmpfiles --create"
    if any(step.action == "write" and step.target == UNIT for step in steps):
        yield (f"editor /{CONFIGURATION_FOLDER}/agent.conf  # set compute_driver and [placement]")
    yield f"runuser -u {DISTRIBUTION} -- agent config check"
    yield f"systemctl daemon-reload && systemctl enable --now {DISTRIBUTION}"


def _next_lines(following: Sequence[str]) -> Iterator[str]:
    if following:
        yield "next:"
    for line in following:
        yield f"  {line}"
