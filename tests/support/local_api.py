"""The local API in the test's process, on a socket of its own, in front of the daemon's own
service.
"""

import contextlib
import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from agent.api.client import ApiClient
from agent.api.local_api import LocalApi
from agent.api.openapi import read
from agent.api.service import Service
from agent.api.socket_file import UnixConnection
from agent.cli.command import Options, Override, Source
from agent.cli.configuration import load


@dataclass(frozen=True)
class Answer:
    """An answer to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The problem's code."""
        assert self.headers["content-type"] == "application/problem+json", self
        found: str = self.json["code"]
        assert self.json["status"] == self.status
        return found


class Described:
    """What openapi.yaml says of answers."""

    def __init__(self) -> None:
        self.document = read()

    def check(self, method: str, target: str, answer: Answer) -> None:
        """The answer is as described; fails if the operation is not."""
        template = self._template(target.partition("?")[0])
        responses = (
            self.document["paths"][template][method.lower()]["responses"] if template else {}
        )
        found = (
            responses.get(str(answer.status))
            or responses.get("default")
            or {"$ref": "#/components/responses/Problem"}
        )
        if "$ref" in found:
            found = self.document["components"]["responses"][found["$ref"].rpartition("/")[2]]
        if "content" not in found:
            assert answer.body == b"", answer
            return
        media_type = answer.headers["content-type"].partition(";")[0]
        assert media_type in found["content"], answer
        if media_type.endswith("json"):
            schema = {
                **found["content"][media_type]["schema"],
                "components": self.document["components"],
            }
            fault = best_match(Draft202012Validator(schema).iter_errors(answer.json))
            assert fault is None, (fault.json_path, fault.message, answer)

    def _template(self, path: str) -> str | None:
        parts = path.split("/")
        for template in self.document["paths"]:
            wanted = template.split("/")
            if len(wanted) == len(parts) and all(
                one in (part, "{uuid}", "{id}") for one, part in zip(wanted, parts, strict=True)
            ):
                return str(template)
        return None


class ApiHere:
    """A running API. ``service`` is the daemon's, with the test in the daemon's place."""

    def __init__(self, path: Path, service: Service, api: LocalApi) -> None:
        self.path, self.service, self.api = path, service, api
        self.client = ApiClient(path)
        self._described = Described()

    def call(
        self,
        method: str,
        target: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        checked: bool = True,
    ) -> Answer:
        """One request; ``body`` is sent as JSON unless it is bytes. The answer has to be as
        openapi.yaml says, if ``checked``.
        """
        content = (
            body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        )
        own = {"Content-Type": "application/json"} if content else {}
        connection = UnixConnection(self.path, 30)
        connection.request(method, target, content, {**own, **(headers or {})})
        response = connection.getresponse()
        answer = Answer(
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            response.read(),
        )
        connection.close()
        if checked:
            self._described.check(method, target, answer)
        return answer

    def connect(self, timeout: float = 30) -> socket.socket:
        """A bare connection."""
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        found.connect(str(self.path))
        found.settimeout(timeout)
        return found

    def raw(self, data: bytes) -> bytes:
        """All that the server answers to these bytes, until it closes."""
        with self.connect() as connection:
            connection.sendall(data)
            found = b""
            # What the server did not read resets the connection after the answer.
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    found += part
            return found

    @contextlib.contextmanager
    def answering(self, report: bytes = b"{}") -> Iterator[None]:
        """Play the daemon's loop: audits that are asked for have ``report``, and every
        configuration is good.
        """
        done = threading.Event()

        def loop() -> None:
            while not done.wait(0.005):
                for whole in (True, False):
                    self.service.audits.answer(self.service.audits.take(whole=whole), report)
                self.service.begin_reload()
                self.service.end_reload(None)

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextlib.contextmanager
def api_here(folder: Path | None = None, **options: str) -> Iterator[ApiHere]:
    """An API with these options of ``[api]``; its socket is in ``folder``, or in one that everybody
    may enter.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agent-")))
            folder.chmod(0o755)
        path = folder / "agent.sock"
        overrides = tuple(
            Override("api", name, value) for name, value in {"socket": str(path), **options}.items()
        )
        service = Service(lambda: None)
        api = LocalApi(
            load(Options(sources=(Source(Path(os.devnull)),), overrides=overrides), {}), service
        )
        api.start()
        try:
            yield ApiHere(path, service, api)
        finally:
            service.stop()
            api.stop()
            api.wait()
