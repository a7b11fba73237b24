"""Who has which device of a node, by its records, in the form in which the tree takes it. Pure."""

from agent.desired.device_uses import DeviceUse, DeviceUses
from agent.model.held_device import DeviceRow
from agent.model.names import ConsumerUuid
from agent.model.pci_address import PciAddress
from agent.tracker.node_state import NodeState


def device_uses(state: NodeState) -> DeviceUses:
    """The devices in use that Placement may count: not those of a physical network, which networking counts."""
    moving = {one.instance for one in state.claims.values() if one.half != "only" or one.state != "consumed"}
    settled = {one.instance for one in state.claims.values()} - moving
    counted = [one for one in state.devices.values() if not one.tags.get("physical_network")]
    held = [(one, state.claims[one.holder].instance) for one in counted if one.holder is not None and one.holder in state.claims]
    return DeviceUses(tuple(_use(device, owner) for device, owner in held), frozenset(settled))


def _use(device: DeviceRow, owner: ConsumerUuid) -> DeviceUse:
    return DeviceUse(PciAddress.parse(device.address), PciAddress.parse(device.parent or device.address), owner, device.numa_node)
