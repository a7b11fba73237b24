"""Who has which device of a node, by its records, in the form in which the tree takes it. Pure."""

from agent.tree.device_uses import DeviceUse, DeviceUses
from agent.model.device_record import DeviceRecord
from agent.model.names import ConsumerUuid
from agent.model.pci_address import PciAddress
from agent.tracker.node_state import NodeState
from agent.tracker.reservations import withheld


def device_uses(state: NodeState) -> DeviceUses:
    """The devices in use."""
    moving = {one.instance for one in state.claims.values() if one.half != "only" or one.state != "consumed"}
    settled = {one.instance for one in state.claims.values()} - moving
    held = [(one, state.claims[one.holder].instance) for one in state.devices.values() if one.holder is not None and one.holder in state.claims]
    busy = {one.uuid for one in state.instances.values() if one.task_state is not None} | {one.instance for one in state.migrations.values() if not one.ended}
    known = frozenset({*(one.instance for one in state.claims.values()), *state.instances, *state.migrations})
    return DeviceUses(tuple(_use(device, owner) for device, owner in held), frozenset(settled), frozenset(busy), withheld(state.devices), known)


def _use(device: DeviceRecord, owner: ConsumerUuid) -> DeviceUse:
    return DeviceUse(PciAddress.parse(device.address), PciAddress.parse(device.card), owner, device.numa_node, bool(device.tags.get("physical_network")))
