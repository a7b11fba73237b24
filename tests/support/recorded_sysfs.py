"""Builds small recordings of /sys: what the kernel would show of a made-up host, file by file and
link by link.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self


def cpu_map(cpus: Iterable[int], words: int = 1) -> str:
    """The kernel's hexadecimal map of ``cpus``, at least ``words`` words of 32 bits, the highest
    first.
    """
    bits = sum(1 << cpu for cpu in set(cpus))
    words = max(words, (bits.bit_length() + 31) // 32)
    return ",".join(f"{bits >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(words)))


def cpu_list(cpus: Iterable[int]) -> str:
    """The CPUs one by one, which the kernel's format allows too."""
    return ",".join(map(str, sorted(set(cpus))))


class RecordedSysfs:
    """A tree below ``root``. Everything can be overwritten afterwards, to damage it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def write(self, path: str, text: str | bytes) -> None:
        """Write one file, with its folders. A libvirtd that reads it meanwhile sees the old text or
        the new one, and never an empty file.
        """
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_name(f".{file.name}.new")
        written.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())
        written.replace(file)

    def link(self, path: str, target: str) -> None:
        """Make, or remake, one symbolic link with just this text."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        made = link.with_name(f".{link.name}.new")
        made.symlink_to(target)
        made.replace(link)

    def remove(self, path: str) -> None:
        """Remove one file or link."""
        (self.root / path).unlink()

    def cpu(
        self,
        number: int,
        threads: Iterable[int] | None = None,
        package: int = 0,
        online: bool = True,
        form: str = "list",
    ) -> None:
        """One CPU; ``form``: ``list`` or ``map`` for the old names, ``core_list`` or ``core_map``
        for the new ones.
        """
        folder = f"devices/system/cpu/cpu{number}"
        self.write(f"{folder}/online", "1" if online else "0")
        if not online:
            return
        siblings = [number] if threads is None else list(threads)
        name, text = {
            "list": ("thread_siblings_list", cpu_list(siblings)),
            "map": ("thread_siblings", cpu_map(siblings, words=2)),
            "core_list": ("core_cpus_list", cpu_list(siblings)),
            "core_map": ("core_cpus", cpu_map(siblings, words=2)),
        }[form]
        self.write(f"{folder}/topology/{name}", text)
        self.write(f"{folder}/topology/physical_package_id", str(package))

    def cpus_online(self, text: str) -> None:
        """The kernel's list of the CPUs that run."""
        self.write("devices/system/cpu/online", text)

    def cells_online(self, text: str) -> None:
        """The kernel's list of the cells that are online."""
        self.write("devices/system/node/online", text)

    def cell(
        self,
        number: int,
        cpus: Iterable[int],
        memory_kib: int,
        distances: Iterable[int],
        form: str = "list",
    ) -> None:
        """One cell; ``form``: ``list`` or ``map`` of its CPUs."""
        folder = f"devices/system/node/node{number}"
        members = list(cpus)
        self.write(
            f"{folder}/cpulist" if form == "list" else f"{folder}/cpumap",
            cpu_list(members) if form == "list" else cpu_map(members),
        )
        self.write(
            f"{folder}/meminfo",
            (
                f"Node {number} MemTotal:       {memory_kib} kB\nNode {number} MemFree:        "
                f"{memory_kib // 2} kB"
            ),
        )
        self.write(f"{folder}/distance", " ".join(map(str, distances)))

    def pages(self, cell: int | None, pools: Mapping[int, tuple[int, int]]) -> None:
        """Huge pages of a cell, or of the whole host: size in KiB to total and free."""
        folder = (
            "kernel/mm/hugepages" if cell is None else f"devices/system/node/node{cell}/hugepages"
        )
        for size, (total, free) in pools.items():
            self.write(f"{folder}/hugepages-{size}kB/nr_hugepages", str(total))
            self.write(f"{folder}/hugepages-{size}kB/free_hugepages", str(free))

    def pci(
        self,
        address: str,
        ids: str = "8086:1572",
        class_code: str = "0x020000",
        cell: int = -1,
        vfs: int | None = None,
        driver: str | None = None,
    ) -> str:
        """One PCI function, as a folder below its bus and a link to it; ``vfs``: how many VFs it
        could have.
        """
        folder = f"devices/pci{address.rpartition(':')[0]}/{address}"
        vendor, product = ids.split(":")
        files = {
            "vendor": f"0x{vendor}",
            "device": f"0x{product}",
            "class": class_code,
            "numa_node": str(cell),
        }
        if vfs is not None:
            files |= {"sriov_totalvfs": str(vfs), "sriov_numvfs": "0"}
        for name, text in files.items():
            self.write(f"{folder}/{name}", text)
        if driver is not None:
            self.link(f"{folder}/driver", f"../../../bus/pci/drivers/{driver}")
        self.link(f"bus/pci/devices/{address}", f"../../../{folder}")
        return folder

    def virtual_function(
        self, physical: str, number: int, address: str, ids: str = "8086:154c", cell: int = -1
    ) -> str:
        """One VF of the PF, with the links between the two."""
        folder = self.pci(address, ids, cell=cell)
        self.link(f"{folder}/physfn", f"../{physical}")
        pf_folder = os.path.realpath(self.root / "bus/pci/devices" / physical)
        self.link(
            str(Path(pf_folder).relative_to(self.root.resolve()) / f"virtfn{number}"),
            f"../{address}",
        )
        return folder

    def enable_virtual_functions(self, physical: str, count: int, product: str) -> None:
        """What the kernel does when ``count`` is written to the PF's ``sriov_numvfs``: all that
        were there go, and so many come.
        """
        bus = self.root / "bus/pci/devices"
        folder = (bus / physical).resolve()
        for link in folder.glob("virtfn*"):
            shutil.rmtree(link.resolve())
            (bus / link.readlink().name).unlink()
            link.unlink()
        for number in range(count):
            cell = int((folder / "numa_node").read_text())
            self.virtual_function(
                physical,
                number,
                f"{physical.rpartition(':')[0]}:02.{number}",
                f"8086:{product}",
                cell,
            )
        (folder / "sriov_numvfs").write_text(f"{count}\n")

    def interface(self, name: str, device: str, **files: str) -> None:
        """A network interface of the device in this folder, such as ``phys_port_name`` and
        ``dev_port`` say it is.
        """
        folder = f"{device}/net/{name}"
        number = str(len(list((self.root / "class/net").glob("*"))) + 1)
        texts = {
            "address": f"52:54:00:6d:90:{int(number):02x}",
            "flags": "0x1002",
            "ifindex": number,
            "operstate": "down",
            "dev_port": "0",
            "uevent": f"INTERFACE={name}\nIFINDEX={number}",
        }
        for file, text in {**texts, **files}.items():
            self.write(f"{folder}/{file}", text)
        self.link(f"{folder}/device", f"../../../{Path(device).name}")
        self.link(f"{folder}/subsystem", os.path.relpath("class/net", folder))
        self.link(f"class/net/{name}", f"../../{folder}")

    def mediated(self, parent: str, types: Mapping[str, int], devices: Mapping[str, str]) -> None:
        """Let the PCI function be cut into mediated devices: how many more there could be of each
        type, and the type of each that exists.
        """
        folder = str(
            (self.root / "bus/pci/devices" / parent).resolve().relative_to(self.root.resolve())
        )
        self.link(f"class/mdev_bus/{parent}", f"../../{folder}")
        self.link(f"{folder}/subsystem", os.path.relpath("bus/pci", folder))
        for name, available in types.items():
            for file, text in (
                ("name", name),
                ("device_api", "vfio-pci"),
                ("available_instances", str(available)),
            ):
                self.write(f"{folder}/mdev_supported_types/{name}/{file}", text)
        for number, (uuid, name) in enumerate(devices.items()):
            self.write(f"{folder}/{uuid}/uevent", "")
            self.write(f"kernel/iommu_groups/{number}/name", "")
            links = {
                "mdev_type": f"{folder}/mdev_supported_types/{name}",
                "subsystem": "bus/mdev",
                "iommu_group": f"kernel/iommu_groups/{number}",
            }
            for link, target in links.items():
                self.link(f"{folder}/{uuid}/{link}", os.path.relpath(target, f"{folder}/{uuid}"))
            self.link(f"{folder}/mdev_supported_types/{name}/devices/{uuid}", f"../../../{uuid}")
            self.link(f"bus/mdev/devices/{uuid}", f"../../../{folder}/{uuid}")

    def for_libvirt(self) -> Self:
        """Add what a kernel has besides, and libvirtd, libnuma and libudev look for: CPUs that
        exist, cores and dies, maps of cells, words on devices.
        """
        cpus = sorted(
            int(folder.name.removeprefix("cpu"))
            for folder in (self.root / "devices/system/cpu").glob("cpu[0-9]*")
        )
        self.write("devices/system/cpu/present", f"{cpus[0]}-{cpus[-1]}")
        for cpu in cpus:
            topology = self.root / f"devices/system/cpu/cpu{cpu}/topology"
            if topology.is_dir():
                threads = (topology / "thread_siblings_list").read_text().strip()
                self.write(
                    f"devices/system/cpu/cpu{cpu}/topology/core_id", threads.partition(",")[0]
                )
                self.write(f"devices/system/cpu/cpu{cpu}/topology/die_id", "0")
        for listed in (self.root / "devices/system/node").glob("node*/cpulist"):
            members = listed.read_text().replace(",", " ").split()
            self.write(
                f"devices/system/node/{listed.parent.name}/cpumap", cpu_map(map(int, members))
            )
        for link in (self.root / "bus/pci/devices").iterdir():
            folder = str(link.resolve().relative_to(self.root.resolve()))
            vendor, device, kind = (
                (link / name).read_text().strip().removeprefix("0x")
                for name in ("vendor", "device", "class")
            )
            self.write(
                f"{folder}/uevent",
                f"PCI_CLASS={kind.lstrip('0')}\nPCI_ID={vendor}:{device}\nPCI_SLOT_NAME={link.name}".upper(),
            )
            self.write(f"{folder}/config", bytes(256))
            self.link(f"{folder}/subsystem", os.path.relpath("bus/pci", folder))
        return self


def smt_host(root: Path) -> RecordedSysfs:
    """A host with most of what can be odd, and nothing wrong.

    Cell 0: CPUs 0-3, threads 0+2 and 1+3, package 0. Cell 8: CPUs 4-7, 6 and 7 offline, package 1.
    Cell 250: memory only. Cell 9: a CPU and no memory. Huge pages on cell 0 and 8; a PF with two of
    four VFs; a function in a 32-bit domain.
    """
    tree = RecordedSysfs(root)
    for cpu, threads in {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)}.items():
        tree.cpu(cpu, threads, package=0)
    for cpu in (4, 5):
        tree.cpu(cpu, package=1)
    for cpu in (6, 7):
        tree.cpu(cpu, online=False)
    tree.cpu(8, package=2)
    tree.cpus_online("0-5,8")
    tree.cell(0, range(4), 4194303, (10, 20, 30, 80))
    tree.cell(8, range(4, 8), 8388608, (20, 10, 30, 80))
    tree.cell(9, (8,), 0, (30, 30, 10, 80))
    tree.cell(250, (), 2097152, (80, 80, 80, 10))
    tree.cells_online("0,8-9,250")
    tree.pages(0, {2048: (512, 500), 1048576: (1, 0)})
    tree.pages(8, {2048: (0, 0), 1048576: (0, 0)})
    tree.pci("0000:00:1f.0", "8086:a1c1", class_code="0x060100")
    tree.pci("0000:3b:00.0", cell=0, vfs=4, driver="i40e")
    tree.virtual_function("0000:3b:00.0", 0, "0000:3b:02.0", cell=0)
    tree.virtual_function("0000:3b:00.0", 1, "0000:3b:02.1", cell=0)
    tree.pci("10000:00:04.0", "1af4:1001", class_code="0x010000", driver="virtio-pci")
    return tree
