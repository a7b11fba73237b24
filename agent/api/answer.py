"""Answers of the local API, checked as far as a client relies on them: whatever listens at a socket
may be another program, or a daemon of another version.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from agent.errors import AgentError

Document = Mapping[str, Any]


class AnswerUnknown(AgentError):
    """What answers at the socket is no agent, or an agent of another version.
    Remedy: name the socket of an agent; use a command of the daemon's version, and restart the
    daemon after an upgrade.
    """

    code = "api.answer_unknown"

    def __init__(self, asked: str, what: str) -> None:
        super().__init__(
            f"{asked}: the answer {what}",
            (
                "is that the [api] socket of an agent? use a command of the daemon's version, and "
                "restart the daemon after an upgrade"
            ),
        )


class _Fields(dict[str, Any]):
    """A JSON object of an answer. Asked for a field that it does not have, it raises
    :class:`AnswerUnknown`.
    """

    __slots__ = ("_asked",)

    def __init__(self, fields: Mapping[str, Any], asked: str) -> None:
        super().__init__(fields)
        self._asked = asked

    def __missing__(self, name: str) -> NoReturn:
        raise AnswerUnknown(self._asked, f"has no field {name}")


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """An answer with a status below 400."""

    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes
    asked: str = ""
    """Who was asked for what, for messages."""

    @property
    def document(self) -> Document:
        """The JSON object. Asked for a field that it does not have, it raises
        :class:`AnswerUnknown`, as does each object in it.

        :raises AnswerUnknown: the answer is no JSON object.
        """
        try:
            found = json.loads(self.body, object_hook=lambda fields: _Fields(fields, self.asked))
        except (ValueError, RecursionError) as error:
            raise AnswerUnknown(self.asked, "is no JSON") from error
        if not isinstance(found, Mapping):
            raise AnswerUnknown(self.asked, "is no JSON object")
        return found

    def objects(self, name: str) -> Sequence[Document]:
        """Return the JSON objects in the list that is the field ``name``.

        :raises AnswerUnknown: there is no such list.
        """
        found: Sequence[Document] = self.page(name, marked=False)[name]
        return found

    def page(self, name: str, *, marked: bool = True) -> Document:
        """Return the JSON object, one page of the list that is the field ``name``. A page that is
        ``marked`` has the marker of the next one, or none, in the field ``next``.

        :raises AnswerUnknown: it is no such page.
        """
        found = self.document
        documents = found[name]
        if not isinstance(documents, list) or not all(
            isinstance(document, Mapping) for document in documents
        ):
            raise AnswerUnknown(self.asked, f"has no list of objects in the field {name}")
        if marked and not isinstance(found["next"], str | None):
            raise AnswerUnknown(self.asked, "has no text in the field next")
        return found

    @property
    def problem(self) -> Document:
        """The problem document of a refusal, whose ``errors`` are objects and whose ``reasons`` are
        texts. If there is none, one is made up.
        """
        try:
            found = dict(self.document)
        except AnswerUnknown:
            found = {}
        if "detail" not in found:
            return {
                "status": self.status,
                "detail": f"the agent answered {self.status}, and no problem document",
                "remedy": "look at the agent's log",
            }
        parts = {
            name: [part for part in value if isinstance(part, kind)]
            for name, kind in (("errors", Mapping), ("reasons", str))
            if isinstance(value := found.pop(name, None), list)
        }
        return {**found, **parts, "status": self.status}
