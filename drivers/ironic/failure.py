"""Failures of ironic, or of identity in front of it: their errors with remedies, and the retry
policies.
"""

import json
import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from keystoneauth1 import exceptions as ksa
from requests import Response
from retrying import Retrying

from agent.errors import NotReady
from agent.model.names import printable

CREDENTIALS = "credentials"
LONGEST = 300
"""Characters of an answer that a message quotes."""

# The first matching entry counts: subclasses stand before their bases. Exception, what, remedy,
# kind.
_MEANINGS: tuple[tuple[type[BaseException], str, str, str], ...] = (
    (
        ksa.CatalogException,
        "the service catalog has no bare-metal endpoint",
        "check [ironic] region_name, valid_interfaces and service_type",
        "catalog",
    ),
    (
        ksa.MissingAuthPlugin,
        "there are no credentials in section [ironic]",
        "set auth_type and its options, as in nova.conf",
        CREDENTIALS,
    ),
    (
        ksa.Unauthorized,
        "identity refuses the credentials",
        "check the user, password and project in [ironic]",
        CREDENTIALS,
    ),
    (
        ksa.AuthorizationFailure,
        "the credentials are incomplete or contradictory",
        "check section [ironic]",
        CREDENTIALS,
    ),
    (
        ksa.SSLError,
        "its certificate is not accepted",
        "set [ironic] cafile to the bundle that signed it",
        "tls",
    ),
    (
        ksa.HttpError,
        "identity failed",
        "nothing to do if it comes back; it is asked again",
        "identity",
    ),
    (
        ksa.ConnectTimeout,
        "no answer in time",
        "check the service, or raise [ironic] timeout",
        "timeout",
    ),
    (
        ksa.ConnectFailure,
        "no connection",
        "check that it runs and can be reached from here",
        "connect",
    ),
    (Exception, "the connection broke", "check what stands between this host and ironic", "broken"),
)


def not_ready(error: Exception, url: str) -> NotReady:
    """Return the error for a keystoneauth exception on the way to ``url``."""
    _, what, remedy, kind = next(meaning for meaning in _MEANINGS if isinstance(error, meaning[0]))
    return NotReady(f"ironic at {url}: {what}: {_line(str(error))}", remedy, kind=kind)


def refused(answer: Response, what: str) -> NotReady:
    """Return the error for an answer that is not the expected one to ``what``."""
    status, kind, remedy = (
        answer.status_code,
        "refused",
        "see the log of ironic, or of what stands in front of it",
    )
    if status == 401:
        kind, remedy = CREDENTIALS, "check the credentials in section [ironic]"
    elif status == 403:
        remedy = "the account in [ironic] may not read nodes; give it a role that may"
    elif status in (404, 406):
        remedy = "check that [ironic] endpoint_override or the catalog names a bare-metal service"
    detail = _detail(answer)
    return NotReady(
        f"ironic {what} -> {status}" + (f": {detail}" if detail else ""),
        remedy,
        kind=kind,
        status=status,
    )


def _detail(answer: Response) -> str:
    """Return ironic's own message, which is JSON in JSON in older releases; empty for a proxy's
    page.
    """
    try:
        body: Any = answer.json()
        message = body.get("error_message", "") if isinstance(body, Mapping) else ""
        if isinstance(message, str) and message.startswith("{"):
            message = json.loads(message)
    except ValueError:
        return ""
    if isinstance(message, Mapping):
        message = message.get("faultstring") or message.get("description")
    return _line(str(message or ""))


def _line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


LOG = logging.getLogger(__name__)

TRIES = 3
"""Attempts in all."""
LONGEST_WAIT = 2.0
"""Seconds."""
# Seconds before the deadline at which retries end, so that the start fails with a reason before it
# is abandoned.
MARGIN = 5.0


def patient(stopped: threading.Event) -> Retrying:
    """Return the policy of a pass: ``TRIES`` attempts in all, after short random waits."""
    return _policy(stopped, lambda: random.uniform(0, LONGEST_WAIT), stop_max_attempt_number=TRIES)


def persistent(
    stopped: threading.Event, retries: int, interval: float, deadline: float
) -> Retrying:
    """Return the policy of a start: ``retries`` more attempts, ``interval`` seconds apart, not
    beyond ``deadline``, in seconds.
    """
    return _policy(
        stopped,
        lambda: interval,
        stop_max_attempt_number=retries + 1,
        stop_max_delay=max(0.0, deadline - MARGIN - interval) * 1000,
    )


def _policy(stopped: threading.Event, pause: Callable[[], float], **limits: float) -> Retrying:
    """Return a retry policy that ends when the driver is stopped, and does not repeat refused
    credentials.
    """
    reason = ""

    def worth_repeating(error: BaseException) -> bool:
        nonlocal reason
        reason = str(error)
        return (
            isinstance(error, NotReady)
            and error.data.get("kind") != CREDENTIALS
            and not stopped.is_set()
        )

    def wait(attempt: int, _elapsed_ms: int) -> int:
        LOG.log(logging.WARNING if attempt == 1 else logging.DEBUG, "%s; it is asked again", reason)
        # Waited here, because the library's own sleep cannot be interrupted.
        stopped.wait(pause())
        return 0

    return Retrying(
        retry_on_exception=worth_repeating, wait_func=wait, wrap_exception=False, **limits
    )
