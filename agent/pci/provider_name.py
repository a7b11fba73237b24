"""The name of the provider that counts a device."""

from agent.model.device_record import DeviceRecord


def provider_name(node: str, device: DeviceRecord) -> str:
    """That of the PF for a VF, the device's own otherwise; ``node`` is the name of the root."""
    head = device.address if device.parent is None else device.parent
    return f"{node}_{head.upper()}"
