"""The faults of a soak: how each begins and ends, and what it may have the daemon log."""

import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass

from bench.soak.site import CARD, IDS, Site
from tests.support.libvirt_host import Operator

HOUR = 3600
Step = Callable[[Site], object]

NO_PLACEMENT = r"placement unreachable|cannot connect to http|placement .*did not answer"
# What libvirt says of a connection that is cut, or given up by its keepalive, while a call waits for
# its answer.
CUT = (
    "Cannot (recv|write) data|End of file while reading data|client socket is closed|"
    "closed due to keepalive timeout"
)
NO_LIBVIRT = rf"the connection to qemu.* is lost|facts of .* is not complete: .*(libvirt|did not answer within|calls hang|{CUT})|cannot connect to qemu"
# libvirtd lists a device that is pulled out until it has read of the event.
HALF_GONE = "facts of .* (pci|mdev) is not complete: device pci_0000_5e_00_0: .*No such file"


def _nothing(_site: Site) -> None:
    """What ends by itself."""


@dataclass(frozen=True)
class Fault:
    """``seconds``: between ``begin`` and ``end``. ``logs``: a regular expression of the warnings that it explains. ``shows``: the drift that the
    agent has to report before the end. ``heals``: the orchestrator has to write allocations again.
    """

    name: str
    begin: Step
    seconds: float
    end: Step = _nothing
    logs: str = "$^"
    shows: str = ""
    heals: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """What it explains."""
        return re.compile(self.logs)


def _uevent(site: Site, action: str, folder: str) -> None:
    site.libvirtd.uevent(
        action, folder, SUBSYSTEM="pci", PCI_CLASS="20000", PCI_ID=IDS, PCI_SLOT_NAME=CARD
    )


def _plug(site: Site) -> None:
    folder = site.sysfs.pci(CARD, IDS, cell=8)
    site.sysfs.for_libvirt()
    _uevent(site, "add", folder)


def _pull_out(site: Site) -> None:
    link = site.sysfs.root / "bus/pci/devices" / CARD
    there = link.resolve()
    folder = str(there.relative_to(site.sysfs.root.resolve()))
    shutil.rmtree(there)
    link.unlink()
    _uevent(site, "remove", folder)


def _libvirtd_comes_back(site: Site) -> None:
    site.libvirtd.start()
    site.operator.close()
    site.operator = Operator(site.libvirtd.uri)


def _stranger_comes(site: Site) -> None:
    site.operator.start("stranger", paused=True)


def _stranger_goes(site: Site) -> None:
    domain = site.operator.connection.lookupByName("stranger")
    domain.destroy()
    domain.undefine()


def _reload(site: Site) -> None:
    site.daemon.service.process.send_signal(signal.SIGHUP)


def _clock(seconds: int) -> Step:
    """The clock is set, and then a guest comes or goes, which has to be noticed all the same."""

    def begin(site: Site) -> None:
        site.set_clock(seconds)
        _stranger_comes(site)

    return begin


def _clock_back(site: Site) -> None:
    site.set_clock(0)
    _stranger_goes(site)


STRANGER, NO_RECORD = "unknown-domain", "domain stranger .*no record knows it"


FAULTS = (
    Fault(
        "Placement restarted",
        lambda site: site.placement.stop(),
        8,
        lambda site: site.placement.start(),
        NO_PLACEMENT,
    ),
    Fault("a guest that nobody claimed", _stranger_comes, 10, _stranger_goes, NO_RECORD, STRANGER),
    Fault(
        "libvirtd hung",
        lambda site: site.libvirtd.freeze(),
        25,
        lambda site: site.libvirtd.thaw(),
        NO_LIBVIRT,
    ),
    Fault("the clock an hour ahead", _clock(HOUR), 20, _clock_back, NO_RECORD, STRANGER),
    Fault(
        "Placement killed",
        lambda site: site.placement.kill(),
        8,
        lambda site: site.placement.start(),
        NO_PLACEMENT,
    ),
    Fault("a device plugged in and pulled out", _plug, 15, _pull_out, HALF_GONE),
    Fault(
        "libvirtd killed",
        lambda site: site.libvirtd.kill(),
        5,
        _libvirtd_comes_back,
        NO_LIBVIRT,
    ),
    Fault("the clock two hours behind", _clock(-2 * HOUR), 20, _clock_back, NO_RECORD, STRANGER),
    Fault(
        "Placement hung",
        lambda site: site.placement.suspend(),
        20,
        lambda site: site.placement.resume(),
        NO_PLACEMENT,
    ),
    Fault("the configuration read again", _reload, 5),
    Fault(
        "Placement restored from an older copy",
        lambda site: site.placement.restore(site.copy),
        5,
        lambda site: site.placement.save(site.copy),
        # A pass that read before and writes afterwards meets a consumer of the older copy.
        "placement state went back|is counted here, but has no allocation|consumer .* was changed meanwhile",
        heals=True,
    ),
    Fault("the clock a day ahead", _clock(24 * HOUR), 20, _clock_back, NO_RECORD, STRANGER),
)
