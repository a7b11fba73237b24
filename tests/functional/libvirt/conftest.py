"""A real libvirtd for the tests of this folder, all in one process of pytest, because it takes
seconds to know QEMU.
"""

from collections.abc import Iterator

import pytest

from tests.support.libvirt_host import Operator
from tests.support.libvirtd import Libvirtd, module


@pytest.fixture(scope="session")
def _libvirtd() -> Iterator[Libvirtd]:
    server = Libvirtd()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def libvirtd(_libvirtd: Libvirtd) -> Iterator[Libvirtd]:
    """A running libvirtd without guests; a test may hold, stop or kill it."""
    yield _libvirtd
    _libvirtd.recover()
    operator = Operator(_libvirtd.uri)
    operator.clear()
    operator.close()


@pytest.fixture
def operator(libvirtd: Libvirtd) -> Iterator[Operator]:
    """Who makes guests there."""
    somebody = Operator(libvirtd.uri)
    yield somebody
    # First, because leaving a libvirtd that hangs takes as long as that.
    libvirtd.recover()
    somebody.close()


@pytest.fixture(autouse=True)
def _binding() -> None:
    module()
