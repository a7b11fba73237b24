"""Asks nova's own LibvirtDriver what it would have in Placement, with one configuration file after
another. Run by a Python that has nova and libvirt.

Prints a JSON object for each file, a line each: the providers by their names, or why nova does not
start with it.
"""

import json
import os
import sys
from typing import Any

import nova.monkey_patch

nova.monkey_patch.patch()

import nova.conf  # noqa: E402 - nova has to be patched before anything else of it is imported
from nova import objects  # noqa: E402
from nova.compute import provider_tree  # noqa: E402
from nova.virt import fake  # noqa: E402
from nova.virt.libvirt import driver as libvirt_driver  # noqa: E402
from oslo_privsep import priv_context  # noqa: E402

ROOT = "5f9c2a34-7d1e-4a8b-9c46-000000000001"


def told(file: str) -> dict[str, Any]:
    """What nova tells of the host with this configuration, without devices of [pci]: its tracker
    adds those.
    """
    conf = nova.conf.CONF
    conf([], project="nova", default_config_files=[file])
    objects.register_all()
    for context in [
        one
        for one in vars(sys.modules["nova.privsep"]).values()
        if isinstance(one, priv_context.PrivContext)
    ]:
        # Without a helper of its own, because there is nothing here that needs one.
        context.set_client_mode(False)
    # There is no database, and so nothing that was pinned before.
    objects.ComputeNode.get_by_nodename = classmethod(
        lambda *_, **__: objects.ComputeNode(numa_topology=None)
    )
    driver = libvirt_driver.LibvirtDriver(fake.FakeVirtAPI())
    driver.init_host("host")
    (node,) = driver.get_available_nodes()
    tree = provider_tree.ProviderTree()
    tree.new_root(node, ROOT, generation=0)
    driver.update_provider_tree(tree, node)
    # As nova's tracker does, which keeps the ports' trait to hosts that have such devices: none here.
    traits = set(tree.data(node).traits) | {"COMPUTE_NODE", "OWNER_NOVA"}
    for name, supported in driver.capabilities_as_traits().items():
        supported = supported and name != "COMPUTE_REMOTE_MANAGED_PORTS"
        traits = traits | {name} if supported else traits - {name}
    tree.update_traits(node, traits)
    found = {one: tree.data(one) for one in tree.get_provider_uuids()}
    names = {uuid: data.name.removeprefix(node).lstrip("_") for uuid, data in found.items()}
    return {
        "providers": {
            names[uuid]: {"inventories": data.inventory, "traits": sorted(data.traits)}
            for uuid, data in found.items()
        }
    }


def in_child(file: str) -> str:
    """The same from a process of its own, because nova keeps much for as long as a
    process lasts.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer: dict[str, Any] = told(file)
        except BaseException as error:  # noqa: BLE001 - whatever it is, nova does not start
            answer = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(writing, "w") as output:
            output.write(json.dumps(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        found = stream.read()
    os.waitpid(child, 0)
    return found


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(in_child(name), flush=True)
