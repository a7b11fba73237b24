"""Nodes as ironic 39 tells of them."""

from collections.abc import Mapping
from typing import Any

from drivers.ironic.node import BareMetalNode

NODE = "1be26c0b-03f2-4d2e-ae87-c02d7f33c781"
OTHER = "1be26c0b-03f2-4d2e-ae87-c02d7f33c782"
INSTANCE = "9d8f7e6c-5b4a-4392-8170-6f5e4d3c2b1a"


def document(**fields: Any) -> Mapping[str, Any]:
    """One element of a list of nodes."""
    return {
        "uuid": NODE,
        "power_state": "power off",
        "provision_state": "available",
        "maintenance": False,
        "properties": {},
        "instance_uuid": None,
        "traits": [],
        "resource_class": "baremetal-gold",
        "links": [{"href": f"http://127.0.0.1:6385/v1/nodes/{NODE}", "rel": "self"}],
        **fields,
    }


def node(**fields: Any) -> BareMetalNode:
    """The same as a node."""
    return BareMetalNode.of(document(**fields))
