"""libvirt's own test backend, within this process: node devices and their events as one likes them,
and who is not let in.
"""

import pytest

from agent.errors import NotReady
from drivers.libvirt.binding import binding
from tests.support.libvirt_host import started
from tests.support.service_manager import until

DEFAULT = "test:///default"

NODE = """\
<node>
  <cpu><mhz>6000</mhz><model>i986</model><active>8</active><nodes>2</nodes><sockets>2</sockets><cores>2</cores><threads>2</threads></cpu>
  <memory>8192000</memory>{more}
</node>
"""
VIRTUAL_ADAPTER = """\
<device><parent>scsi_host1</parent><capability type='scsi_host'>
  <capability type='fc_host'><wwnn>1111222233334444</wwnn><wwpn>5555666677778888</wwpn></capability>
</capability></device>
"""


@pytest.fixture
def uri(tmp_path):
    def described(more):
        file = tmp_path / "node.xml"
        file.write_text(NODE.format(more=more))
        return f"test://{file}"

    return described


def test_a_callback_that_raises_stops_no_other(capfd):
    libvirt, told = binding(), []

    def refuses(node):
        told.append(node)
        raise RuntimeError("not now")

    with started(DEFAULT, refuses):
        other = libvirt.open(DEFAULT)
        try:
            for _ in range(2):
                other.nodeDeviceCreateXML(VIRTUAL_ADAPTER).destroy()
            until(lambda: len(told) == 4, lambda: told)
        finally:
            other.close()
    assert "not now" in capfd.readouterr().err


def test_nobody_is_asked_for_a_password(uri):
    with pytest.raises(
        NotReady,
        match=r"cannot connect to test:.*authentication.*\(let the agent in without a password",
    ):
        with started(uri("<auth><user password='secret'>somebody</user></auth>")):
            pass
