"""The instructions that a process has executed, where the kernel counts them for it.

They are nearly the same in every run, whatever else the machine does. On many virtual machines the
kernel has no counter.
"""

import ctypes
import os
import platform
import struct

# The system call perf_event_open, by machine.
SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
HARDWARE, INSTRUCTIONS = 0, 1
SIZE = 112
# Bits of the attributes: children are counted too, kernel and hypervisor are not.
INHERIT, WITHOUT_KERNEL, WITHOUT_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
CLOSED_IN_CHILDREN = 8


class InstructionCount:
    """Counts from its construction on, in user space: the thread that constructs it, and threads
    that are started later. Construct it before any thread.
    """

    def __init__(self) -> None:
        self._descriptor = _open()

    @property
    def available(self) -> bool:
        """Whether the kernel counts."""
        return self._descriptor is not None

    def read(self) -> int | None:
        """Return the count; None if the kernel does not count."""
        if self._descriptor is None:
            return None
        (count,) = struct.unpack("Q", os.read(self._descriptor, 8))
        return int(count)


def _open() -> int | None:
    number = SYSTEM_CALLS.get(platform.machine())
    if number is None:
        return None
    flags = INHERIT | WITHOUT_KERNEL | WITHOUT_HYPERVISOR
    # struct perf_event_attr: type, size, config, period, sample type, read format, flags.
    attributes = struct.pack("IIQQQQQ", HARDWARE, SIZE, INSTRUCTIONS, 0, 0, 0, flags)
    buffer = ctypes.create_string_buffer(attributes, SIZE)
    descriptor = ctypes.CDLL(None).syscall(number, buffer, 0, -1, -1, CLOSED_IN_CHILDREN)
    return descriptor if descriptor >= 0 else None
