"""What can go wrong between a client and Placement: which request it hits, and what
happens to it.
"""

import enum
import json
import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from tests.support.exchange import Exchange


class Loss(enum.Enum):
    """How the client loses its answer."""

    REFUSED = "connection refused"
    CONNECT_TIMEOUT = "no connection in time"
    UNRESOLVED = "host name unknown"
    NO_ROUTE = "no route to host"
    BAD_CERTIFICATE = "certificate not accepted"
    CUT = "connection closed without an answer"
    RESET = "connection reset"
    READ_TIMEOUT = "no answer in time"
    HALF = "connection closed in the middle of the answer"


NEVER_CONNECTED = frozenset(
    {Loss.REFUSED, Loss.CONNECT_TIMEOUT, Loss.UNRESOLVED, Loss.NO_ROUTE, Loss.BAD_CERTIFICATE}
)


@dataclass(frozen=True)
class Reply:
    """An answer in place of Placement's."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """What happens to a request. In this order: ``delay`` (seconds), ``before``, Placement,
    ``after``, the answer, which ``rewrite`` makes another.

    Placement handles the request when nothing takes its place (no loss, no reply) or when
    ``applied`` is set.
    """

    name: str
    delay: float = 0.0
    before: Callable[[Exchange], object] | None = None
    after: Callable[[Exchange], object] | None = None
    reply: Reply | None = None
    loss: Loss | None = None
    applied: bool = False
    rewrite: Callable[[Reply], Reply] | None = None

    def __post_init__(self) -> None:
        if self.applied and self.loss in NEVER_CONNECTED:
            raise ValueError(
                f"{self.name}: a request that never connected cannot have been applied"
            )

    @property
    def reaches(self) -> bool:
        """Whether Placement sees the request."""
        return self.applied or (self.loss is None and self.reply is None)


def refused() -> Action:
    """Nobody listens."""
    return Action("refused", loss=Loss.REFUSED)


def connect_timeout() -> Action:
    """The connection is not made in time."""
    return Action("connect-timeout", loss=Loss.CONNECT_TIMEOUT)


def unresolved() -> Action:
    """The host's name is not known."""
    return Action("unresolved", loss=Loss.UNRESOLVED)


def no_route() -> Action:
    """The network does not lead there."""
    return Action("no-route", loss=Loss.NO_ROUTE)


def bad_certificate() -> Action:
    """The server's certificate is not accepted."""
    return Action("bad-certificate", loss=Loss.BAD_CERTIFICATE)


def cut(*, applied: bool = False) -> Action:
    """The connection is closed without an answer, before Placement saw the request or after it was
    applied.
    """
    return Action("cut", loss=Loss.CUT, applied=applied)


def reset(*, applied: bool = False) -> Action:
    """As ``cut``, with a TCP reset."""
    return Action("reset", loss=Loss.RESET, applied=applied)


def read_timeout(*, applied: bool = False) -> Action:
    """The answer does not come in time."""
    return Action("read-timeout", loss=Loss.READ_TIMEOUT, applied=applied)


def half_answer() -> Action:
    """Placement's answer breaks off in the middle of its body."""
    return Action("half-answer", loss=Loss.HALF, applied=True)


def answer(
    status: int,
    code: str | None = None,
    *,
    detail: str = "injected by the test",
    headers: Mapping[str, str] | None = None,
    applied: bool = False,
) -> Action:
    """An error in Placement's own form. ``applied``: although Placement did what was asked."""
    error = {
        "status": status,
        "title": _phrase(status),
        "detail": detail,
        "request_id": "req-injected",
    }
    if code is not None:
        error["code"] = code
    body = json.dumps({"errors": [error]}).encode()
    sent = {
        "Content-Type": "application/json",
        "x-openstack-request-id": "req-injected",
        **(headers or {}),
    }
    return Action(f"answer-{status}", reply=Reply(status, body, sent), applied=applied)


def html(status: int, *, applied: bool = False) -> Action:
    """The error page of something in front of Placement: no JSON, no request id."""
    page = (
        f"<html><head><title>{status} "
        f"{_phrase(status)}</title></head><body>\n<h1>{_phrase(status)}</h1></body></html>\n"
    )
    return Action(
        f"html-{status}",
        reply=Reply(status, page.encode(), {"Content-Type": "text/html"}),
        applied=applied,
    )


def many_headers() -> Action:
    """An answer with more headers than Python's HTTP reads."""
    return Action(
        "many-headers", reply=Reply(200, b"{}", {f"X-{number}": "1" for number in range(101)})
    )


def delay(seconds: float) -> Action:
    """Placement answers late."""
    return Action("delay", delay=seconds)


def rewritten(change: Callable[[Any], Any], name: str = "rewritten") -> Action:
    """Placement's own answer with another body: what ``change`` makes of it, which is bytes, or
    anything that JSON can tell.
    """

    def rewrite(reply: Reply) -> Reply:
        made = change(json.loads(reply.body)) if reply.body else reply.body
        headers = {
            name: value for name, value in reply.headers.items() if name.lower() != "content-length"
        }
        return Reply(
            reply.status, made if isinstance(made, bytes) else json.dumps(made).encode(), headers
        )

    return Action(name, rewrite=rewrite)


def before(call: Callable[[Exchange], object]) -> Action:
    """Somebody else acts just before Placement handles the request."""
    return Action("before", before=call)


def after(call: Callable[[Exchange], object]) -> Action:
    """Somebody else acts just after Placement handled the request, before the client has the
    answer.
    """
    return Action("after", after=call)


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase


@dataclass
class Rule:
    """Which requests are hit, by what. ``hits`` tells a test that the fault really happened."""

    actions: Sequence[Action]
    method: str | None = None
    path: re.Pattern[str] | None = None
    skip: int = 0
    times: int | None = 1
    probability: float = 1.0
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    seen: int = 0
    hits: int = 0

    def matches(self, exchange: Exchange) -> bool:
        method = self.method in (None, exchange.method)
        return method and (self.path is None or self.path.search(exchange.target) is not None)

    def draw(self) -> Action | None:
        """Count a matching request; the action that hits it, if any."""
        self.seen += 1
        if self.seen <= self.skip or (self.times is not None and self.hits >= self.times):
            return None
        if self.dice.random() >= self.probability:
            return None
        self.hits += 1
        return self.actions[0] if len(self.actions) == 1 else self.dice.choice(self.actions)


class Faults:
    """The rules of one server or proxy. The first rule that hits a request decides."""

    def __init__(self, *impossible: Loss) -> None:
        self._impossible = frozenset(impossible)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []

    def add(
        self,
        action: Action | Sequence[Action],
        *,
        method: str | None = None,
        path: str | None = None,
        skip: int = 0,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int = 0,
    ) -> Rule:
        """Hit requests of ``method`` whose path and query match the regular expression ``path``.

        ``skip`` matching requests pass first; then ``times`` are hit (``None``: all), each with
        ``probability``. Of several actions the seeded dice choose.
        """
        actions = [action] if isinstance(action, Action) else list(action)
        for each in actions:
            if each.loss in self._impossible:
                raise ValueError(f"{each.name} cannot happen to a single request here")
        pattern = re.compile(path) if path is not None else None
        rule = Rule(actions, method, pattern, skip, times, probability, random.Random(seed))
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget every rule."""
        with self._lock:
            self._rules.clear()

    def hit(self, exchange: Exchange) -> Action | None:
        """The action for a request, noted in the exchange; ``None`` leaves it undisturbed."""
        with self._lock:
            for rule in self._rules:
                if rule.matches(exchange) and (action := rule.draw()) is not None:
                    exchange.fault = action.name
                    return action
        return None


@dataclass(frozen=True)
class Outcome:
    """What the client gets: ``reply``, unless it is lost; with ``Loss.HALF`` a part of it."""

    reply: Reply | None
    loss: Loss | None


def carry_out(
    action: Action | None,
    exchange: Exchange,
    handle: Callable[[], Reply],
    sleep: Callable[[float], Any],
) -> Outcome:
    """Run one request through an action; ``handle`` is Placement. Both transports go this way.

    The exchange is completed: whether Placement was reached, and the status the client gets.
    """
    doing = action or Action("none")
    if doing.delay:
        sleep(doing.delay)
    if doing.before:
        doing.before(exchange)
    reply = doing.reply
    if doing.reaches:
        exchange.reached = True
        own = handle()
        reply = reply or own
    if doing.after:
        doing.after(exchange)
    if doing.rewrite and reply is not None:
        reply = doing.rewrite(reply)
    loss = doing.loss
    if loss is Loss.HALF and reply is not None and not reply.body:
        loss = Loss.CUT  # because an answer without a body has no middle to break off in
    if reply is not None and loss is None:
        exchange.status = reply.status
        exchange.server_request_id = {
            name.lower(): value for name, value in reply.headers.items()
        }.get("x-openstack-request-id")
    return Outcome(reply, loss)
