"""The hosts that ``bench.same_behaviour`` compares two trees of code on, and what happens there."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import NAMESPACE_DNS, uuid5

from bench import split_driver
from tests.support.child import CHECKOUT
from tests.support.ini import Config
from tests.support.recordings import RECORDINGS, enable_virtual_functions, sysfs_root

PLAIN_FAKES = ("fake", "fake.small", "fake.medium", "fake.medium_nested", "fake.multi_node")
Kind = Literal["run", "serve", "touch", "lose", "occupy"]


def consumer(name: str) -> str:
    """The uuid of the guest, claim or move of this name."""
    return str(uuid5(NAMESPACE_DNS, name))


@dataclass(frozen=True)
class Claim:
    """A claim for a guest. ``held``: what a scheduler allocates of the root before."""

    name: str
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, int] | None = None
    vcpus: int = 1
    memory_mb: int = 64

    @property
    def consumer(self) -> str:
        """The uuid of the guest."""
        return consumer(f"guest-{self.name}")

    @property
    def flavor(self) -> Mapping[str, Any]:
        """The flavor as the local API takes it."""
        amounts = {"vcpus": self.vcpus, "memory_mb": self.memory_mb, "root_gb": 1}
        none = {"ephemeral_gb": 0, "swap_mb": 0, "extra_specs": dict(self.extra_specs)}
        return {"id": self.name, "name": self.name, **amounts, **none}

    @property
    def instance(self) -> Mapping[str, Any]:
        """The instance as the local API takes it."""
        return {"uuid": self.consumer, "project_id": "project", "user_id": "user"}

    def body(self, node: str) -> Mapping[str, Any]:
        """The request for the claim."""
        claim = consumer(f"claim-{self.name}")
        return {"id": claim, "node": node, "instance": self.instance, "flavor": self.flavor}


def _held(cpus: str, amount: int = 1) -> Mapping[str, int]:
    return {cpus: amount, "MEMORY_MB": 64 * amount, "DISK_GB": 1}


_PINNED = {"hw:cpu_policy": "dedicated"}
FLOATING = (
    Claim("floating", held=_held("VCPU")),
    Claim("unallocated"),
    Claim("large", vcpus=60_000),
)
PLACED = (
    Claim("placed", {"hw:numa_nodes": "1"}, _held("VCPU")),
    Claim("pinned", _PINNED, _held("PCPU")),
    Claim("split", {**_PINNED, "hw:numa_nodes": "2"}, _held("PCPU", 2), 2, 128),
    Claim("paged", {"hw:numa_nodes": "1", "hw:mem_page_size": "2048"}, _held("VCPU")),
    Claim("device", {"pci_passthrough:alias": "card:1"}, _held("VCPU")),
)
MOVES = ("resize", "given-up", "away")
KNOWN = {
    consumer(name)
    for name in (
        "stranger",
        "elsewhere",
        *(f"{kind}-{one.name}" for kind in ("guest", "claim") for one in (*FLOATING, *PLACED)),
        *MOVES,
    )
}
"""Uuids that both trees of code have, because they come from here."""


def moves(node: str, claims: Sequence[Claim]) -> Iterator[tuple[str, str, str, Any]]:
    """Yield the title, method, path and body of each request about moves: a resize that is
    confirmed, one that is given up, and a guest that is leaving.
    """
    first = claims[0]
    yield "active", "PATCH", f"/v1/instances/{first.consumer}", {"vm_state": "active"}
    bigger = {**first.flavor, "id": "bigger", "name": "bigger", "memory_mb": 128}
    body = {"node": node, "instance": first.instance, "flavor": bigger}
    for name, steps in (("given-up", ("abort",)), ("resize", ("finish", "confirm"))):
        move = consumer(name)
        yield name, "POST", "/v1/moves", {"id": move, "type": "resize", **body}
        for step in steps:
            yield f"{name} {step}", "POST", f"/v1/moves/{move}/{step}", None
    last = claims[1]
    yield "last active", "PATCH", f"/v1/instances/{last.consumer}", {"vm_state": "active"}
    leaving = {"id": consumer("away"), "type": "live-migration", "node": consumer("elsewhere")}
    leaving |= {"host": "elsewhere", "instance": last.instance}
    yield "away", "POST", "/v1/moves", leaving


@dataclass(frozen=True)
class Step:
    """One thing that happens. ``options``: of the configuration, besides those of the host."""

    kind: Kind
    title: str
    arguments: tuple[str, ...] = ()
    options: Config = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Host:
    """A host, and what happens there. ``options``: of its agent's configuration."""

    name: str
    options: Config
    steps: tuple[Step, ...]


def _audits(title: str, options: Config, *arguments: str) -> Iterator[Step]:
    yield Step("run", f"{title} dry run", ("--once", *arguments, "--dry-run"), options)
    yield Step("run", title, ("--once", *arguments), options)


def _life(layouts: Sequence[Config], claims: tuple[Claim, ...]) -> Iterator[Step]:
    first = layouts[0]
    yield from _audits("first", first)
    yield from _audits("second", first)
    yield Step("run", "everything read again", ("--once", "--reread"), first)
    yield Step("run", "tree", ("tree", "--offline"), first)
    yield Step("serve", "claims", options=first, claims=claims)
    for number, layout in enumerate(layouts[1:]):
        yield from _audits(f"layout {number}", layout)
        yield Step("run", f"layout {number} again", ("--once",), layout)
    yield from _end(layouts[-1])


def _short_life(layouts: Sequence[Config], claims: tuple[Claim, ...]) -> Iterator[Step]:
    yield from _audits("first", layouts[0])
    yield Step("run", "everything read again", ("--once", "--reread"), layouts[0])
    yield Step("serve", "claims", options=layouts[0], claims=claims)
    for number, layout in enumerate(layouts[1:]):
        yield from _audits(f"layout {number}", layout)
    yield Step("run", "tree", ("tree", "--offline"), layouts[-1])


def _end(layout: Config, node: str = "host-b") -> Iterator[Step]:
    yield Step("lose", "lost store", options=layout)
    yield from _audits("without a store", layout)
    yield from _audits("adopted", layout, "--adopt")
    yield Step("occupy", "a stranger", options=layout)
    yield from _audits("beside a stranger", layout, "--reread")
    named = {**layout, "DEFAULT": {"host": "host-b"}}
    yield Step("run", "another name", ("--once", "--dry-run"), named)
    yield Step("run", "given to the provider", ("identity", "rename"), named)
    yield from _audits("renamed", named)
    yield Step("run", "what an end would do", ("decommission", node, "--dry-run"), named)
    yield Step("run", "end refused", ("decommission", node), named)
    consumers = tuple(part for one in sorted(KNOWN) for part in ("--consumer", one))
    yield Step("run", "end", ("decommission", node, *consumers), named)


def _layout(tree: str, mode: str = "mixed", *, pages: bool = False) -> Config:
    compute = {"tree_layout": tree, "numa_mode": mode, "memory_page_classes": pages}
    return {"compute": compute}


FLAT, NESTED = _layout("flat"), _layout("nested")
STRICT = _layout("nested", "strict", pages=True)
MIXED_LIFE = tuple(_life((FLAT, NESTED, STRICT, FLAT, NESTED), FLOATING + PLACED))
STRICT_LIFE = tuple(_life((STRICT, FLAT, STRICT, NESTED), PLACED))
RECORDED_LIFE = tuple(_short_life((FLAT, NESTED, STRICT, FLAT), PLACED))
PLAIN_LIFE = tuple(_life((FLAT, NESTED), FLOATING))


def _metal(nodes: int) -> Config:
    return {"fake": {"baremetal_nodes": nodes}}


METAL_LIFE = (
    *_audits("first", _metal(40)),
    *_audits("second", _metal(40)),
    Step("run", "everything read again", ("--once", "--reread"), _metal(40)),
    *_audits("two are gone", _metal(38)),
    *_audits("they are back", _metal(40)),
    *_end(_metal(40), "host-b-1"),
)
SPLIT_LIFE = (
    *_audits("first", {}),
    Step("serve", "claims", claims=FLOATING),
    Step("touch", "split", ("split",)),
    *_audits("reshaped", {}),
    *_audits("again", {}),
    *_end({}, "split-host"),
)


def _options(driver: str, shared: str, dedicated: str, pci: str = "", **groups: Any) -> Config:
    spec = f'{{"vendor_id": "8086", "product_id": "{pci}"}}'
    alias = (
        f'{{"name": "card", "vendor_id": "8086", "product_id": "{pci}", "device_type": "type-VF"}}'
    )
    offered = {"device_spec": spec, "alias": alias, "report_in_placement": True}
    return {
        "DEFAULT": {"compute_driver": driver},
        "compute": {"cpu_shared_set": shared, "cpu_dedicated_set": dedicated},
        **({"pci": offered} if pci else {}),
        **groups,
    }


def hosts(folder: Path, only: str = "") -> Iterator[Host]:
    """Yield every host whose name has ``only`` in it; recordings are unpacked below ``folder``."""
    yield from (one for one in _made_hosts() if only in one.name)
    for name in RECORDINGS:
        if only in name:
            yield Host(name, _recorded(name, folder / "recordings"), RECORDED_LIFE)


def _made_hosts() -> Iterator[Host]:
    for fake in PLAIN_FAKES:
        yield Host(fake, {"DEFAULT": {"compute_driver": fake}}, PLAIN_LIFE)
    yield Host("fake.pci", _options("fake.pci", "0-1", "", "1515"), PLAIN_LIFE)
    numa = _options("fake.numa", "0-7,32-39", "8-31,40-63", "1515")
    yield Host("fake.numa", numa, MIXED_LIFE)
    yield Host("fake.numa strict", numa, STRICT_LIFE)
    yield Host("fake.baremetal", {"DEFAULT": {"compute_driver": "fake.baremetal"}}, METAL_LIFE)
    yield Host("nova style", {"DEFAULT": {"compute_driver": "bench.split"}}, SPLIT_LIFE)
    for path in sorted((CHECKOUT / "etc/hosts").glob("*.yaml")):
        file = {"fake": {"host_file": path}, "devices": {"enabled_mdev_types": "nvidia-35"}}
        if path.name == "numa.yaml":
            numa = _options("fake.file", "0-1,4-5", "2-3,6-15", "1515", **file)
            yield Host(path.name, numa, MIXED_LIFE)
        else:
            yield Host(path.name, {"DEFAULT": {"compute_driver": "fake.file"}, **file}, PLAIN_LIFE)
    libvirt = {"libvirt": {"connection_uri": "test:///default"}}
    yield Host("libvirt", {"DEFAULT": {"compute_driver": "libvirt"}, **libvirt}, PLAIN_LIFE)


def _recorded(name: str, folder: Path) -> Config:
    root, product = sysfs_root(name, folder), "154c"
    with_functions = sorted(root.glob("bus/pci/devices/*/sriov_totalvfs"))
    if with_functions:
        enable_virtual_functions(root, with_functions[0].parent.name, 4, product)
    shared, dedicated = _halves(root)
    host = {"host": {"sysfs_root": root}}
    return _options("host", shared, dedicated, product if with_functions else "", **host)


def _halves(root: Path) -> tuple[str, str]:
    """Every second CPU of a cell that runs is for guests without CPUs of their own."""
    running = (root / "devices/system/cpu").glob("cpu[0-9]*/topology")
    online = {int(one.parent.name.removeprefix("cpu")) for one in running}
    lists = (root / "devices/system/node").glob("node[0-9]*/cpulist")
    online &= {cpu for one in lists for cpu in _listed(one.read_text())} or online
    shared, dedicated = (",".join(map(str, sorted(online)[begin::2])) for begin in (0, 1))
    return shared, dedicated


def _listed(text: str) -> Iterator[int]:
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def install_driver(folder: Path) -> None:
    """Make the driver ``bench.split`` in ``folder``, which has to be on ``PYTHONPATH``."""
    information = folder / "split_driver-1.dist-info"
    information.mkdir(parents=True)
    shutil.copy(split_driver.__file__, folder / "split_driver.py")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: split-driver\nVersion: 1\n")
    line = "bench.split = split_driver:SplitDriver"
    (information / "entry_points.txt").write_text(f"[compute_node_agent.drivers]\n{line}\n")
