"""The mediated devices and the encryption of a host file."""

from collections import Counter
from collections.abc import Collection

from agent.model.encryption import EncryptionFacts
from agent.model.mdev import PCI, Mdev, MdevParent, parent_name
from agent.model.names import ConsumerUuid, normal_uuid
from drivers.fake.part import Part


def read_mdevs(part: Part, cells: Collection[int] | None) -> tuple[MdevParent, ...]:
    """The parents, in the order of the file; ``cells`` are the ids of the described cells, if any are."""
    parents: dict[str, MdevParent] = {}
    devices = Counter[str]()
    for item in part.items():
        parent = _parent(item)
        if parent.name in parents:
            item.wrong(("parent",), f"the parent {parent.name} is here twice", "give every parent once, with all its devices")
        if cells is not None and parent.numa_node is not None and parent.numa_node not in cells:
            item.wrong(("numa_node",), f"there is no cell {parent.numa_node}", f"cells: {', '.join(str(cell) for cell in sorted(cells))}")
        for index, device in enumerate(parent.mdevs):
            if device.type not in parent.available:
                item.wrong(("mdevs", index, "type"), f"the parent has no type {device.type!r}", "list it under types, with 0 if no more can be made")
            if devices[device.uuid]:
                item.wrong(("mdevs", index, "uuid"), f"the device {device.uuid} is here twice", "give every device its own uuid")
            devices[device.uuid] += 1
        parents[parent.name] = parent
    return tuple(parents.values())


def read_encryption(part: Part) -> EncryptionFacts:
    """The techniques of the file."""
    return EncryptionFacts(dict(part.data))


def _parent(part: Part) -> MdevParent:
    data = part.data
    name = parent_name(data["parent"])
    mdevs = tuple(
        Mdev(normal_uuid(one["uuid"]), one["type"], ConsumerUuid(normal_uuid(one["owner"])) if "owner" in one else None)
        for one in data.get("mdevs", ())
    )  # fmt: skip
    # A virtual parent is all that there is on its bus, which has its name.
    return MdevParent(name, PCI if ":" in name else name, dict(data["types"]), mdevs, data.get("numa_node"))
