"""The addresses at which the API listens: the path of its socket, or a shorter path if that one is
too long for the kernel, and a TCP address for metrics.
"""

import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oslo_config import cfg

from agent.errors import ConfigError
from agent.model.names import printable

METRICS_OPTION = "[api] metrics_address"
Address = tuple[str, int]

# sockaddr_un has 108 bytes for the path and the NUL that ends it.
LONGEST = 107


@contextmanager
def address(path: Path) -> Iterator[str]:
    """Yield the path to bind or connect to; it is valid within the context.

    :raises OSError: the folder does not exist.
    """
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def metrics_address(conf: cfg.ConfigOpts) -> Address | None:
    """Return the address of the metrics listener, as IP address and port; None if there is none.

    :raises ConfigError: the option is not an IP address with a port.
    """
    text = conf.api.metrics_address
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(
            host[1:-1] if host.startswith("[") and host.endswith("]") else host
        )
        if (
            not colon
            or not (port.isascii() and port.isdecimal())
            or not 1 <= int(port) <= 65535
            or (address.version == 6) != host.startswith("[")
        ):
            raise ValueError(text)
    except ValueError as error:
        raise ConfigError(
            f"{METRICS_OPTION} = {printable(text)}: no IP address with a port",
            "write it like 127.0.0.1:9653 or [::1]:9653",
        ) from error
    return str(address), int(port)


def metrics_warning(conf: cfg.ConfigOpts) -> str | None:
    """Return a warning if the metrics address can be reached from other hosts, else None."""
    try:
        address = metrics_address(conf)
    except ConfigError:
        return None
    if address is None or ipaddress.ip_address(address[0]).is_loopback:
        return None
    what = (
        "every client that can reach it can read the metrics, with the names of nodes; the local "
        "API itself is not served there"
    )
    return (
        f"{METRICS_OPTION} = {printable(conf.api.metrics_address)} is no loopback address: "
        f"{what}; use 127.0.0.1 and a proxy, or a firewall"
    )
