"""The transport to Placement, built from the options of [placement], and the transport of a dry
run, which sends no request that writes.
"""

import json
import threading
from dataclasses import dataclass
from typing import Any

from keystoneauth1.exceptions import ClientException
from keystoneauth1.identity.base import BaseIdentityPlugin
from oslo_config import cfg

from agent.conf.default import only_observes
from agent.conf.placement import GROUP
from agent.deadline import within
from agent.errors import ConfigError
from agent.http.bounded import MIB
from agent.http.session import service_adapter
from agent.placement.answers import PlacementAnswer
from agent.placement.transport import Exchange, Timeouts, Transport


def uses_embedded(conf: cfg.ConfigOpts, *, daemon: bool) -> bool:
    """Return whether the embedded Placement is to be used: if configured, or outside of a daemon
    if there are no credentials.

    :raises ConfigError: a daemon has no credentials, or an agent that only observes is to use the
        embedded Placement, which no other program writes to.
    """
    backend = conf.placement.backend
    configured = bool(
        conf.placement.auth_type or conf.placement.auth_section or conf.placement.endpoint_override
    )
    embedded = not configured if backend == "auto" else bool(backend == "embedded")
    if embedded and only_observes(conf):
        raise ConfigError(
            "[DEFAULT] mode = observe with the embedded Placement: nothing is there to be observed",
            "give the [placement] section of nova-compute: --config-file /etc/nova/nova.conf",
        )
    if embedded and backend == "auto" and daemon:
        raise ConfigError(
            "no credentials in section [placement]",
            "set auth_type and its options, as in nova.conf, or backend = embedded",
        )
    return embedded


def timeouts_of(conf: cfg.ConfigOpts) -> Timeouts:
    """Return the timeouts of [placement]."""
    options = conf.placement
    return Timeouts(options.connect_timeout, options.read_timeout, options.reshape_timeout)


def connect_http(conf: cfg.ConfigOpts, cancelled: threading.Event) -> Transport:
    """Return a transport to the Placement that [placement] describes. Nothing is sent.

    :raises ConfigErrors: the authentication plugin, its options or the certificates are wrong; all
        errors are listed.
    """
    options, timeouts = conf.placement, timeouts_of(conf)
    adapter = service_adapter(conf, GROUP, options.max_answer * MIB)
    # The identity service is asked through the same session; without a timeout a hanging one would
    # block for ever.
    adapter.session.timeout = adapter.session.timeout or timeouts.read
    return Transport(
        adapter,
        timeouts=timeouts,
        max_in_flight=options.max_in_flight,
        cancelled=cancelled,
        read_only=only_observes(conf),
    )


def account_roles(transport: Transport) -> frozenset[str] | None:
    """Return the roles of the account, as its token names them; None if its credentials are of a
    kind without a token of the identity service, or that service does not answer.
    """
    session = transport.adapter.session
    auth = transport.adapter.auth or session.auth
    if not isinstance(auth, BaseIdentityPlugin):
        return None
    try:
        with within(transport.timeouts.whole):
            return frozenset(auth.get_access(session).role_names or ())
    except ClientException:
        return None


@dataclass(frozen=True, slots=True)
class Write:
    """One request other than a GET."""

    method: str
    path: str
    version: str | None
    body: Any
    status: int | None
    """The status of the answer, ``None`` if the request was not sent."""


class RecordingExchange(Exchange):
    """An exchange that records every write that was answered.

    In a dry run only GETs are sent, and every write is assumed to succeed. A read
    after such a write still shows the state before it, so a dry run suits only operations that
    decide before they write.
    """

    def __init__(self, transport: Transport, request_id: str, *, dry_run: bool) -> None:
        super().__init__(transport, request_id)
        self.dry_run = dry_run
        self.writes: list[Write] = []

    def send(
        self,
        method: str,
        path: str,
        version: str | None,
        body: Any = None,
        timeout: float | None = None,
        *,
        patient: bool = False,
    ) -> PlacementAnswer:
        """Send or record one request, see :meth:`Exchange.send`."""
        if method == "GET":
            return super().send(method, path, version, body, timeout, patient=patient)
        answer = (
            self._assume_success(method, path, body)
            if self.dry_run
            else super().send(method, path, version, body, timeout)
        )
        self.writes.append(
            Write(method, path, version, body, None if self.dry_run else answer.status)
        )
        return answer

    def _assume_success(self, method: str, path: str, body: Any) -> PlacementAnswer:
        """Return the answer of a Placement that accepts the request."""
        without_body = method == "DELETE" or path.startswith("/allocations")
        status, said = (204, b"") if without_body else (200, json.dumps(body).encode())
        return PlacementAnswer(self.transport.endpoint, method, path, status, said, "no request id")
