"""The made-up /sys of a host: what a libvirtd reads while it is changed."""

import threading

from tests.support.recorded_sysfs import smt_host


def test_a_reader_never_sees_an_empty_file_while_the_host_is_changed(tmp_path):
    host = smt_host(tmp_path).for_libvirt()
    present = host.root / "devices/system/cpu/present"
    link = next((host.root / "bus/pci/devices").iterdir()) / "subsystem"
    before, seen, ended = present.read_text(), set(), threading.Event()

    def read():
        while not ended.is_set():
            seen.add((present.read_text(), link.is_symlink()))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(100):
            host.for_libvirt()
    finally:
        ended.set()
        reader.join()
    assert seen == {(before, True)}
