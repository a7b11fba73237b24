"""Without the Python binding of libvirt the driver says what to install, and the rest of its
package can be used.
"""

import sys

import pytest

from agent.driver import interface as drivers
from agent.errors import ConfigError
from tests.support.libvirt_host import libvirt_conf


def test_its_absence_is_told_with_the_command_that_mends_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "libvirt", None)
    for name in ("libvirt", "libvirt.LibvirtDriver"):
        with pytest.raises(ConfigError, match="the Python package of libvirt is missing") as caught:
            drivers.load(name, libvirt_conf("none"))
        assert "pip install 'compute-node-agent[libvirt]'" in caught.value.remedy
