"""Sends what udev sends to all who listen when a device comes or goes; a process of its own, to be
run in their network namespace.

The properties come as a JSON object on standard input. It imports nothing of the tests, because it
may run as somebody else.
"""

import json
import socket
import struct
import sys

NETLINK_KOBJECT_UEVENT = 15
# The multicast group of udev; 1 is the kernel's own.
UDEV = 2
MAGIC = 0xFEEDCAFE


def message(properties: dict[str, str]) -> bytes:
    """The message, as libudev has it: a header with no hashes, by which others filter, and the
    properties.
    """
    body = b"".join(f"{name}={value}".encode() + b"\0" for name, value in properties.items())
    head = struct.Struct("=8s4s3I16x")
    return head.pack(b"libudev\0", struct.pack(">I", MAGIC), head.size, head.size, len(body)) + body


if __name__ == "__main__":
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as channel:
        channel.sendto(message(json.load(sys.stdin)), (0, UDEV))
