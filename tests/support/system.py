"""Runs the agent's command line as users do: a process of its own, a configuration file, an exit
code, two streams.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from agent.api.openapi import PREFIX, VERSION, document_names, document_schema
from agent.cli.main import run
from tests.support import preloaded
from tests.support.child import CHECKOUT, undone
from tests.support.ini import Config, write_config
from tests.support.preloaded import ForkedProcess

# ---
# Holds the documents that commands write against the schemas that the agent ships.


META = "https://json-schema.org/draft/2020-12/schema"


def check_document(document: Mapping[str, Any]) -> None:
    """Fail unless ``document`` names a schema of the agent and is valid by it.

    The output of ``agent schema NAME`` is a JSON schema itself, and is checked as one.
    """
    if document.get("$schema") == META:
        Draft202012Validator.check_schema(document)
        return
    assert "schema" in document, f"a document that does not name its schema: {document}"
    name = document["schema"].removeprefix(PREFIX).removesuffix(VERSION)
    assert name in document_names(), f"agent/api/documents.yaml has no schema of {name}"
    error = best_match(_validator(name).iter_errors(document))
    assert error is None, f"{document['schema']} {error.json_path}: {error.message[:500]}"


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(document_schema(name))


LONGEST_CHECKED = 1_000_000
"""Characters of a document; longer ones have thousands of like nodes, and would take long to check."""
FOREIGN_VARIABLES = ("OS_", "XDG_")
"""Beginnings of environment variables that would change what the agent does, and are kept from it."""


@dataclass(frozen=True, repr=False)
class Result:
    """How a run ended."""

    arguments: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document it must be, valid by its schema."""
        try:
            document = json.loads(self.stdout)
        except ValueError as error:
            raise AssertionError(
                f"standard output is no JSON document ({error})\n{self}"
            ) from error
        if len(self.stdout) <= LONGEST_CHECKED:
            check_document(document)
        return document

    def __repr__(self) -> str:
        return (
            f"agent {' '.join(self.arguments)} -> {self.code}\n--- stdout\n{self.stdout}\n--- "
            f"stderr\n{self.stderr}"
        )


class AgentCommand:
    """The ``agent`` command with a folder of its own for configuration, store and home.

    ``config`` is ``{group: {option: value}}``; ``[store] path`` is the folder's ``store`` and
    ``[api] socket`` its ``agent.sock`` unless given.
    """

    def __init__(self, folder: Path, config: Config | None = None) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.socket = folder / "agent.sock"
        self.config_file = folder / "agent.conf"
        self.configure(config or {})

    def configure(self, config: Config) -> None:
        """Write the configuration anew."""
        store = {"path": self.store, **config.get("store", {})}
        api = {"socket": self.socket, **config.get("api", {})}
        write_config(self.config_file, {**config, "store": store, "api": api})

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 120.0
    ) -> Result:
        """Run to the end; a run longer than ``timeout`` seconds fails the test."""
        with self.started(*arguments, env=env) as process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired as error:
                process.kill()
                stdout, stderr = process.communicate()
                raise AssertionError(
                    f"not done in {timeout} s\n{Result(arguments, -9, stdout, stderr)}"
                ) from error
            return Result(arguments, process.returncode, stdout, stderr)

    @contextlib.contextmanager
    def started(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> Iterator["subprocess.Popen[str] | ForkedProcess"]:
        """A running agent, for signals and kills; what is left of it is killed at the end."""
        given = ["--config-file", str(self.config_file), *arguments]
        environment = self._environment(env or {})
        with self._start(given, environment) as process:
            try:
                yield process
            finally:
                process.kill()

    def _start(
        self, arguments: list[str], environment: dict[str, str]
    ) -> "subprocess.Popen[str] | ForkedProcess":
        if preloaded.can_fork(arguments, environment):
            return preloaded.start("agent", arguments, cwd=self.folder, environment=environment)
        return subprocess.Popen(
            [sys.executable, "-m", "agent", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment,
        )

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(FOREIGN_VARIABLES)
        }
        return {
            **kept,
            "HOME": str(self.folder),
            "NO_PROXY": "*",
            "PYTHONPATH": str(CHECKOUT),
            **extra,
        }


class AgentHere(AgentCommand):
    """The same in the test's own process, a second faster: for what needs neither signals nor an
    embedded Placement.
    """

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 120.0
    ) -> Result:
        """Run to the end; ``timeout`` is not looked at."""
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
        with contextlib.ExitStack() as stack:
            stack.enter_context(undone())
            stack.enter_context(contextlib.chdir(self.folder))
            stack.enter_context(patch.dict(os.environ, self._environment(env or {}), clear=True))
            stack.enter_context(contextlib.redirect_stdout(streams[0]))
            stack.enter_context(contextlib.redirect_stderr(streams[1]))
            code = run(["--config-file", str(self.config_file), *arguments])
        stdout, stderr = (stream.buffer.getvalue().decode() for stream in _flushed(streams))  # type: ignore[attr-defined]
        return Result(arguments, code, stdout, stderr)


def _flushed(streams: list[io.TextIOWrapper]) -> Iterator[io.TextIOWrapper]:
    for stream in streams:
        stream.flush()
        yield stream
