"""Writes the records of a compute node and its servers into nova's databases. Run by a Python that
has nova, with a configuration file and a JSON object as arguments.
"""

import json
import sys
from typing import Any

from nova import config, context, objects

HOST = "node-a"


def compute_node(ctxt: Any, uuid: str) -> None:
    """The record that nova-compute writes of its node."""
    objects.ComputeNode(
        context=ctxt,
        uuid=uuid,
        host=HOST,
        hypervisor_hostname=HOST,
        vcpus=16,
        memory_mb=32768,
        local_gb=500,
        vcpus_used=0,
        memory_mb_used=0,
        local_gb_used=0,
        hypervisor_type="fake",
        hypervisor_version=1,
        cpu_info="",
    ).create()


def server(ctxt: Any, mapping: Any, uuid: str, owner: tuple[str, str]) -> None:
    """A server that runs on the node, with a flavor of 1 CPU, 2048 MiB and 20 GiB."""
    project, user = owner
    flavor = objects.Flavor(
        context=ctxt,
        flavorid="7",
        name="m1.small",
        vcpus=1,
        memory_mb=2048,
        root_gb=20,
        ephemeral_gb=0,
        swap=0,
        rxtx_factor=1.0,
        vcpu_weight=0,
        disabled=False,
        is_public=True,
        extra_specs={},
    )
    objects.Instance(
        context=ctxt,
        uuid=uuid,
        project_id=project,
        user_id=user,
        host=HOST,
        node=HOST,
        compute_id=1,
        vm_state="active",
        task_state=None,
        flavor=flavor,
        # Without an image, nova would take its disk for a volume.
        image_ref=uuid,
        vcpus=1,
        memory_mb=2048,
        root_gb=20,
        ephemeral_gb=0,
        system_metadata={},
    ).create()
    objects.InstanceMapping(
        context=context.get_admin_context(),
        instance_uuid=uuid,
        project_id=project,
        user_id=user,
        cell_mapping=mapping,
        queued_for_delete=False,
    ).create()


def main(file: str, text: str) -> None:
    """Write what ``text`` describes: ``node``, ``project``, ``user`` and the uuids of ``servers``."""
    config.parse_args(["nova-records", "--config-file", file])
    objects.register_all()
    told = json.loads(text)
    mappings = objects.CellMappingList.get_all(context.get_admin_context())
    (cell,) = (one for one in mappings if one.uuid != objects.CellMapping.CELL0_UUID)
    with context.target_cell(context.get_admin_context(), cell) as ctxt:
        compute_node(ctxt, told["node"])
        for uuid in told["servers"]:
            server(ctxt, cell, uuid, (told["project"], told["user"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
