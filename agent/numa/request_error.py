"""What can be wrong with a guest's request, before any host is looked at."""

from typing import Literal

from agent.errors import AgentError
from agent.model.names import printable

Kind = Literal[
    "InvalidNodes", "TopologyForbidden", "Asymmetric", "Incomplete", "CpuOutOfRange", "CpuDuplicate", "CpuUnassigned",
    "MemoryMismatch", "InvalidCpuPolicy", "PinningForbidden", "InvalidThreadPolicy", "ThreadPolicyForbidden",
    "ThreadPolicyNeedsPinning", "MaskNeedsMixed", "MaskInvalid", "EmulatorNeedsPinning", "InvalidEmulatorPolicy",
    "PageSizeInvalid", "PageSizeForbidden", "LockedNeedsPages", "InvalidPciPolicy", "PciPolicyForbidden", "VcpuPcpuConflict",
]  # fmt: skip

# Where flavor and image, or two ways to say the same, contradict each other.
CONFLICTS: frozenset[Kind] = frozenset({
    "TopologyForbidden", "PinningForbidden", "ThreadPolicyForbidden", "PageSizeForbidden", "PciPolicyForbidden", "VcpuPcpuConflict",
})  # fmt: skip


class GuestRequestError(AgentError):
    """A flavor or image that asks for something impossible: which key and value, why, and what would be ``allowed``."""

    code = "numa.request"

    def __init__(self, kind: Kind, key: str, value: object, why: str, allowed: str) -> None:
        super().__init__(printable(f"{key} = {value}: {why}"), f"allowed: {printable(allowed)}", kind=kind, key=key, value=str(value))
        self.kind = kind
        self.key = key
