"""The guests as libvirt shows them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.errors import DriverError
from agent.model.domain import Domain
from agent.model.names import ConsumerUuid, is_uuid, normal_uuid
from agent.model.topology import Topology
from drivers.libvirt.amount import kib_of, mib_up
from drivers.libvirt.raw_capabilities import DomainAnswer
from drivers.libvirt.guest_cells import placed_cells
from drivers.libvirt.guest_devices import Ways, mediated_devices_of, pci_devices_of
from drivers.libvirt.nova_metadata import origin_of
from drivers.libvirt.xml import child, fault, natural, parse

EMULATOR_POLICY = "hw:emulator_threads_policy"


@dataclass(frozen=True, slots=True)
class Domains:
    """All guests that could be understood, by uuid. ``owners``: the guest that has each mediated device, by the device's uuid."""

    value: tuple[Domain, ...]
    owners: Mapping[str, ConsumerUuid]
    faults: tuple[str, ...] = ()


def read_domains(answers: Iterable[DomainAnswer], ways: Ways, topology: Topology | None) -> Domains:
    """One that cannot be understood is set aside; the others stay."""
    found: dict[str, tuple[Domain, tuple[str, ...]]] = {}
    faults: list[str] = []
    for answer in answers:
        try:
            one = _domain(answer, ways, topology)
            if one[0].uuid in found:
                raise fault(f"guest {answer.name}", f"another has its uuid {answer.uuid}")
            found[one[0].uuid] = one
        except DriverError as error:
            faults.append(error.message)
    in_order = [found[uuid] for uuid in sorted(found)]
    # A guest that is off may name a device that another has now.
    by_claim = sorted(in_order, key=lambda one: one[0].state != "stopped")
    owners = {mdev: domain.uuid for domain, mdevs in by_claim for mdev in mdevs}
    return Domains(tuple(domain for domain, _ in in_order), owners, tuple(faults))


def _domain(answer: DomainAnswer, ways: Ways, topology: Topology | None) -> tuple[Domain, tuple[str, ...]]:
    what = f"guest {answer.name}"
    if not is_uuid(answer.uuid):
        raise fault(what, f"{answer.uuid[:40]!r} is no uuid")
    root = parse(answer.xml, what, "domain")
    memory, vcpu = child(root, "memory", what), root.find("vcpu")
    origin = origin_of(root, what)
    policy = origin.flavor.extra_specs.get(EMULATOR_POLICY) if origin is not None else None
    domain = Domain(
        uuid=ConsumerUuid(normal_uuid(answer.uuid)),
        name=answer.name,
        memory_mib=mib_up(kib_of(memory.text, memory.get("unit"), f"{what}: memory")),
        vcpus=None if vcpu is None else natural(vcpu.text, f"{what}: vcpu"),
        state=answer.state,
        cells=placed_cells(root, topology, policy, what),
        devices=pci_devices_of(root, ways, what),
        origin=origin,
    )
    return domain, mediated_devices_of(root, what)
