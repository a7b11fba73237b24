"""An operator's shell, which runs the commands of remedies as they are written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import backends
from tests.support.child import CHECKOUT
from tests.support.system import AgentCommand

CLIENT = os.environ.get("OPENSTACK_CLIENT")


def need_openstack() -> str:
    """The OpenStack client; without it the test is skipped."""
    if not CLIENT:
        pytest.skip(
            backends.reason(
                "the OpenStack client",
                "set OPENSTACK_CLIENT to the openstack command of an environment with "
                "python-openstackclient, osc-placement and python-ironicclient",
            )
        )
    return str(Path(CLIENT).absolute())


class Shell:
    """A shell in which ``agent`` is the agent's command, and ``openstack`` that of an
    administrator. ``placement``, ``nova``: the URLs of the services that the client leads to.
    """

    def __init__(
        self, folder: Path, agent: AgentCommand, placement: str = "", nova: str = ""
    ) -> None:
        self._folder, self._programs = agent.folder, folder
        self._identity = nova.removesuffix("/v2.1") + "/v3"
        folder.mkdir(exist_ok=True)
        self.has("agent", f'exec {sys.executable} -m agent --config-file {agent.config_file} "$@"')
        if placement:
            self.has(
                "openstack",
                f"case \"$*\" in *'resource '*|*'trait '*) url={placement};; *) url={nova};; esac",
                f'OS_ENDPOINT=$url exec {need_openstack()} "$@"',
            )

    def has(self, name: str, *lines: str) -> None:
        """Give it a command that runs these lines."""
        program = self._programs / name
        program.write_text("\n".join(("#!/bin/sh", *lines, "")))
        program.chmod(0o755)

    def run(self, command: str) -> str:
        """Run a command, which must neither fail nor tell of an error; what it prints."""
        environment = {
            "HOME": str(self._folder),
            "PATH": f"{self._programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
            "NO_PROXY": "*",
            "OS_AUTH_TYPE": "admin_token",
            "OS_TOKEN": "admin",
            "OS_IDENTITY_ENDPOINT_OVERRIDE": self._identity,
            # A version with which the client alone cannot unset a consumer of nova.
            "OS_PLACEMENT_API_VERSION": "1.39",
        }
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            env=environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran
        assert "rror" not in ran.stderr, ran
        return ran.stdout


WAYS = re.compile(r"; (?:or )?(?:if|else)\b|; then|; all of it: ")
"""Between the ways of a remedy, and the steps of one of them."""


def command_of(remedy: str, beginning: str) -> str:
    """The command of a remedy that begins like this, up to the next way or step."""
    return WAYS.split(remedy[remedy.index(beginning) :])[0]
