"""What requests raises for a lost connection, built without one: the same classes, causes and texts
as from a socket.
"""

import errno
import os
import socket
import ssl
from http.client import RemoteDisconnected
from urllib.parse import urlsplit

import requests
import urllib3.exceptions as urllib3_errors
from requests import exceptions
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

from tests.support.faults import Loss


def loss_error(loss: Loss, request: requests.PreparedRequest) -> exceptions.RequestException:
    """The exception a client gets for any loss but ``HALF``, which is only found while the body is
    read.
    """
    return (
        _broken(loss, request)
        if loss in (Loss.CUT, Loss.RESET, Loss.READ_TIMEOUT)
        else _not_connected(loss, request)
    )


def _not_connected(loss: Loss, request: requests.PreparedRequest) -> exceptions.RequestException:
    parts = urlsplit(str(request.url))
    host, port = str(parts.hostname), parts.port or 80
    connection = HTTPConnection(host, port)
    system: OSError
    reason: Exception
    kind: type[exceptions.ConnectionError] = exceptions.ConnectionError
    if loss is Loss.CONNECT_TIMEOUT:
        system = TimeoutError("timed out")
        reason = urllib3_errors.ConnectTimeoutError(
            connection, f"Connection to {host} timed out. (connect timeout=5)"
        )
        kind = exceptions.ConnectTimeout
    elif loss is Loss.UNRESOLVED:
        system = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        reason = urllib3_errors.NameResolutionError(host, connection, system)
    elif loss is Loss.BAD_CERTIFICATE:
        text = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"
        system = ssl.SSLCertVerificationError(1, text)
        reason = urllib3_errors.SSLError(system)
        kind = exceptions.SSLError
    else:
        number = errno.ECONNREFUSED if loss is Loss.REFUSED else errno.EHOSTUNREACH
        system = OSError(number, os.strerror(number))
        reason = urllib3_errors.NewConnectionError(
            connection, f"Failed to establish a new connection: {system}"
        )
    reason.__cause__ = system
    retried = urllib3_errors.MaxRetryError(HTTPConnectionPool(host, port), parts.path, reason)
    retried.__cause__ = reason
    return _outermost(kind, retried, request)


def _broken(loss: Loss, request: requests.PreparedRequest) -> exceptions.RequestException:
    parts = urlsplit(str(request.url))
    if loss is Loss.READ_TIMEOUT:
        pool = HTTPConnectionPool(str(parts.hostname), parts.port or 80)
        late = urllib3_errors.ReadTimeoutError(
            pool, parts.path, "Read timed out. (read timeout=60)"
        )
        late.__cause__ = TimeoutError("timed out")
        return _outermost(exceptions.ReadTimeout, late, request)
    system: OSError = RemoteDisconnected("Remote end closed connection without response")
    if loss is Loss.RESET:
        system = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    aborted = urllib3_errors.ProtocolError("Connection aborted.", system)
    aborted.__context__ = system
    return _outermost(exceptions.ConnectionError, aborted, request)


def _outermost(
    kind: type[exceptions.RequestException], below: Exception, request: requests.PreparedRequest
) -> exceptions.RequestException:
    error = kind(below, request=request)
    error.__context__ = below
    return error
