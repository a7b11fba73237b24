"""Builds the adapter for a service from its section of keystoneauth options, and explains problems
of TLS: what is wrong, and the remedy.
"""

import re
import ssl
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from keystoneauth1 import adapter as ksa_adapter
from keystoneauth1 import exceptions as ksa
from keystoneauth1 import loading
from keystoneauth1.session import Session
from oslo_config import cfg

from agent.errors import ConfigError, ConfigErrors
from agent.http.bounded import MAX_ANSWER, bounded_session
from agent.version import DISTRIBUTION, agent_version

# What to do about a certificate, by the codes of OpenSSL's verification (X509_V_ERR_...).
_CERTIFICATES: Sequence[tuple[Collection[int | None], str]] = (
    (
        {9, 10},
        "have the server's certificate renewed, and see that the clocks of both hosts are right",
    ),
    (
        {62, 63, 64},
        "ask for the server by a name that its certificate has: [{group}] endpoint_override, "
        "auth_url or the catalog",
    ),
    ({None, 2, 18, 19, 20, 21}, "set [{group}] cafile to the bundle that signed it"),
    # Found by the strict checks, which are made by Python 3.13 and newer.
    (
        range(80, 94),
        "have the certificates of the server and of its authority issued anew, with all that "
        "RFC 5280 asks for: Python 3.13 and newer accept no others",
    ),
)
# What to do about a handshake, by patterns of OpenSSL's reasons.
_HANDSHAKES: Sequence[tuple[str, str]] = (
    (
        "CERTIFICATE_REQUIRED|ALERT.*(CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE)",
        "the server wants a client's certificate that it accepts: set [{group}] certfile and "
        "keyfile",
    ),
    (
        "^KEY_VALUES_MISMATCH$",
        "[{group}] keyfile is not the key of certfile: give both of one pair",
    ),
    (
        "^(WRONG_VERSION_NUMBER|HTTP_REQUEST|UNKNOWN_PROTOCOL)$",
        "the server does not speak TLS at this port: check the URL, http or https",
    ),
    (
        "PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|NO_SHARED_CIPHER",
        "server and agent have no version of TLS or cipher in common: check [{group}] "
        "tls_min_version, tls_ciphers and the server",
    ),
)


class _Session(Session):
    """A session that asks for the versions of the identity service without a token only.

    keystoneauth repeats a question that is answered 401 with a token, for which it waits under the
    lock that it asks under: for ever. Without the versions it goes by the path of auth_url.
    """

    def request(self, url: str, method: str, **options: Any) -> Any:  # type: ignore[override]
        """Send a request, see keystoneauth."""
        try:
            return super().request(url, method, **options)
        except ksa.Unauthorized as error:
            if method != "GET" or options.get("authenticated") is not False:
                raise
            raise ksa.HttpError(
                "the question for its versions was refused",
                response=error.response,
                url=url,
                method=method,
                http_status=401,
            ) from error


class _SessionLoader(loading.session.Session):
    """Loads sessions of that class."""

    @property
    def plugin_class(self) -> type[Session]:
        """The class of the sessions."""
        return _Session


def user_agent() -> str:
    """Return how requests name the program, so that the log of a service can be searched for it."""
    return f"{DISTRIBUTION}/{agent_version()}"


def service_adapter(
    conf: cfg.ConfigOpts, group: str, max_answer: int = MAX_ANSWER
) -> ksa_adapter.Adapter:
    """Return an adapter for the service that the section ``group`` describes; no answer to it is
    longer than ``max_answer`` bytes. Sends nothing.

    :raises ConfigErrors: everything that is wrong with the plugin, its options and its
        certificates.
    """
    section = conf[group]
    files = _file_problems(group, section.cafile, section.certfile, section.keyfile)
    ConfigErrors.raise_if_any([*_section_problems(conf, group), *files])
    # None where keystoneauth is too old to have the options.
    limits = {name: getattr(conf[group], name, None) for name in ("tls_ciphers", "tls_min_version")}
    try:
        auth = loading.load_auth_from_conf_options(conf, group)
        http = bounded_session(max_answer, {name: value for name, value in limits.items() if value})
        session = _SessionLoader().load_from_conf_options(conf, group, auth=auth, session=http)
        session.user_agent = user_agent()
        adapter = loading.load_adapter_from_conf_options(conf, group, session=session, auth=auth)
    except (ksa.ClientException, cfg.Error, OSError, ValueError, TypeError) as error:
        raise ConfigErrors(
            [
                ConfigError(
                    f"section [{group}]: {error}",
                    f"compare with the [{group}] section of a working nova.conf",
                )
            ]
        ) from error
    if auth is None:
        raise ConfigErrors(
            [
                ConfigError(
                    f"no credentials in section [{group}]",
                    "set auth_type and its options, as in nova.conf",
                )
            ]
        )
    if getattr(auth, "auth_url", None) == "":
        raise ConfigErrors(
            [
                ConfigError(
                    f"[{group}] auth_url is empty",
                    "give the URL of the identity service, as in nova.conf",
                )
            ]
        )
    return adapter


def _section_problems(conf: cfg.ConfigOpts, group: str) -> Iterator[ConfigError]:
    section = conf[group].auth_section
    if section and section != group and not conf[section].auth_type:
        yield ConfigError(
            (
                f"[{group}] auth_section = {section}: there is no section [{section}] with an "
                "auth_type"
            ),
            f"name the section that holds the credentials, or give them in [{group}]",
        )


def session_problems(session: Session, group: str) -> Iterator[ConfigError]:
    """Yield what is wrong with the certificate files that a session uses."""
    pair = (session.cert, None) if isinstance(session.cert, str) else (session.cert or (None, None))
    cafile = session.verify if isinstance(session.verify, str) else None
    return _file_problems(group, cafile, *pair)


def _file_problems(
    group: str, cafile: str | None, certfile: str | None, keyfile: str | None
) -> Iterator[ConfigError]:
    """Yield what is wrong with the certificate files of a section."""
    readable = True
    for name, path in (("cafile", cafile), ("certfile", certfile), ("keyfile", keyfile)):
        if path and (reason := _unreadable(path, folder=name == "cafile")):
            readable = False
            yield ConfigError(
                f"[{group}] {name} = {path}: {reason}",
                f"give a file in PEM form that the agent may read, or leave {name} out",
            )
    if not readable:
        return
    if cafile and not Path(cafile).is_dir():
        try:
            ssl.create_default_context(cafile=cafile)
        except (ssl.SSLError, OSError) as error:
            yield ConfigError(
                (
                    f"[{group}] cafile = {cafile}: no certificate can be read from it: "
                    f"{_reason(error)}"
                ),
                "give a file in PEM form",
            )
    if certfile:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
                certfile, keyfile or None, lambda: ""
            )
        except (ssl.SSLError, OSError, ValueError) as error:
            mismatch = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
            what = (
                "the key is not that of the certificate"
                if mismatch
                else f"certificate and key cannot be used: {_reason(error)}"
            )
            files = f"[{group}] certfile = {certfile}" + (
                f", keyfile = {keyfile}" if keyfile else ""
            )
            yield ConfigError(
                f"{files}: {what}",
                "give a certificate and its key, without a passphrase, both in PEM form",
            )
    elif keyfile:
        yield ConfigError(f"[{group}] keyfile without certfile", "give both, or neither")


def _unreadable(path: str, *, folder: bool) -> str:
    try:
        if folder and Path(path).is_dir():
            next(Path(path).iterdir(), None)
        else:
            Path(path).open("rb").close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


def tls_remedy(causes: Iterator[BaseException], group: str) -> str:
    """Return the remedy for a failure of TLS, from the innermost of its causes that is known."""
    remedies = filter(None, map(_remedy_of, causes))
    remedy = next(remedies, "set [{group}] cafile to the bundle that signed it")
    return remedy.format(group=group)


def _remedy_of(cause: BaseException) -> str | None:
    """Return the remedy for one cause of a failure; None if it is not known."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        code = getattr(cause, "verify_code", None)
        return next(
            (remedy for codes, remedy in _CERTIFICATES if code in codes),
            "see the server's certificate: openssl s_client -connect HOST:PORT",
        )
    if isinstance(cause, ssl.SSLEOFError):
        return (
            "the server ended the connection while TLS was set up: check that it speaks TLS at "
            "this port, and its log"
        )
    if isinstance(cause, ssl.SSLError):
        reason = getattr(cause, "reason", None) or ""
        return next(
            (remedy for pattern, remedy in _HANDSHAKES if re.search(pattern, reason)),
            "see the server's log; openssl s_client -connect HOST:PORT shows more",
        )
    if isinstance(cause, OSError) and "CA certificate" in str(cause):
        return "give [{group}] cafile a file that is there and that the agent may read"
    return None
