"""The Python binding of libvirt, an extra of this package, and the errors that come out of it."""

from types import ModuleType
from typing import Any

from agent.errors import ConfigError, DriverError, NotReady
from agent.model.names import printable

INSTALL = "pip install 'compute-node-agent[libvirt]'; to build it takes gcc, pkg-config and libvirt's headers (libvirt-dev)"


class LibvirtRefused(DriverError):
    """libvirt answered with an error. ``number``: its code."""

    code = "libvirt.refused"

    def __init__(self, message: str, remedy: str = "", *, number: int) -> None:
        super().__init__(message, remedy)
        self.number = number


class ConnectionLost(NotReady):
    """The connection to libvirtd is broken for good."""

    code = "libvirt.connection-lost"


def binding() -> ModuleType:
    """The module ``libvirt``. Here, because the rest of this package can be used without it.

    :raises ConfigError: it is not installed.
    """
    try:
        import libvirt
    except ImportError as error:
        raise ConfigError(f"[DEFAULT] compute_driver = libvirt: the Python package of libvirt is missing: {error}", INSTALL) from error
    module: ModuleType = libvirt
    return module


def translated(what: str, error: Any) -> DriverError:
    """One of libvirt's errors as one of ours. ``what`` was being done."""
    libvirt = binding()
    number, domain = error.get_error_code(), error.get_error_domain()
    message = printable(f"{what}: {error.get_error_message() or 'libvirt gives no reason'}")
    broken = number in (libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_ERR_INTERNAL_ERROR) and domain in (libvirt.VIR_FROM_REMOTE, libvirt.VIR_FROM_RPC)
    if broken:
        return ConnectionLost(message, "see whether libvirtd runs; the agent connects again by itself")
    return LibvirtRefused(message, "see the log of libvirtd", number=number)
