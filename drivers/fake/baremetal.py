"""``fake.baremetal``: many exclusive nodes, as a bare-metal service has them."""

import uuid
from collections.abc import Collection

from oslo_config import cfg

from drivers.fake.base import DescribedDriver, ShapesOutright
from drivers.fake.machine import NODE, Machine, ProviderEntry, full_record

NAMESPACE = uuid.UUID("6f1a3c52-8d0e-4b7b-9a55-2f7c0e9d41b6")
RESOURCE_CLASS = "CUSTOM_BAREMETAL_GOLD"


def baremetal_uuid(index: int) -> str:
    """Return the uuid, which is also the name, of a node: the same in every run and on every
    host.
    """
    return str(uuid.uuid5(NAMESPACE, str(index)))


class BaremetalDriver(ShapesOutright, DescribedDriver):
    """``[fake] baremetal_nodes`` nodes; each is one unit of one class and has no other
    resources.
    """

    described = Machine(
        providers=(ProviderEntry(NODE, inventories={RESOURCE_CLASS: full_record({"total": 1})}),)
    )

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._names = dict.fromkeys(
            baremetal_uuid(index) for index in range(conf.fake.baremetal_nodes)
        )

    def node_names(self) -> Collection[str]:
        """Return the uuids of all nodes."""
        return self._names

    def node_uuid(self, name: str) -> str:
        """Return the name: a node is named after its uuid."""
        return name
