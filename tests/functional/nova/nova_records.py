"""Writes the records of a compute node and its servers into nova's databases. Run by a Python that
has nova, with a configuration file and a JSON object as arguments.
"""

import datetime
import json
import sys
from typing import Any

from nova import config, context, objects
from nova.network.model import NetworkInfo
from oslo_utils import timeutils

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


def server(ctxt: Any, mapping: Any, uuid: str, owner: tuple[str, str], **state: Any) -> None:
    """A server that runs on the node, with a flavor of 1 CPU, 2048 MiB and 20 GiB. ``state``: its
    fields that are otherwise.
    """
    project, user = owner
    flavor = objects.Flavor(
        context=ctxt,
        id=7,
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
    fields = {
        "host": HOST,
        "node": HOST,
        "compute_id": 1,
        "vm_state": "active",
        "task_state": None,
        "launched_at": timeutils.utcnow(),
        **state,
    }
    objects.Instance(
        context=ctxt,
        uuid=uuid,
        project_id=project,
        user_id=user,
        flavor=flavor,
        # Without an image, nova would take its disk for a volume.
        image_ref=uuid,
        vcpus=1,
        memory_mb=2048,
        root_gb=20,
        ephemeral_gb=0,
        system_metadata={},
        info_cache=objects.InstanceInfoCache(instance_uuid=uuid, network_info=NetworkInfo()),
        **fields,
    ).create()
    objects.InstanceMapping(
        context=context.get_admin_context(),
        instance_uuid=uuid,
        project_id=project,
        user_id=user,
        cell_mapping=mapping,
        queued_for_delete=False,
    ).create()
    # What it was asked for with, which a move asks for again.
    kinds = objects.RequestSpec.fields
    nothing = {name: None for name, kind in kinds.items() if getattr(kind, "nullable", False)}
    request = {
        "instance_uuid": uuid,
        "project_id": project,
        "user_id": user,
        "flavor": flavor,
        "image": objects.ImageMeta(id=uuid, properties=objects.ImageMetaProps()),
        "num_instances": 1,
        "pci_requests": objects.InstancePCIRequests(instance_uuid=uuid, requests=[]),
        "requested_networks": objects.NetworkRequestList(objects=[]),
    }
    wanted = {name: value for name, value in {**nothing, **request}.items() if name != "id"}
    objects.RequestSpec(context.get_admin_context(), **wanted).create()


def migration(ctxt: Any, uuid: str, **fields: Any) -> None:
    """The record of a move."""
    kept = {"migration_type": "migration", "source_node": HOST, "user_id": "u", "project_id": "p"}
    objects.Migration(context=ctxt, uuid=uuid, **{**kept, **fields}).create()


def service(
    ctxt: Any, beat: float | None, *, disabled: bool = False, forced_down: bool = False
) -> None:
    """The record of nova-compute, which has told of itself so many seconds ago; None: never."""
    seen = None if beat is None else timeutils.utcnow() - datetime.timedelta(seconds=beat)
    found = objects.Service.get_by_host_and_binary(ctxt, HOST, "nova-compute")
    record = found or objects.Service(context=ctxt, host=HOST, binary="nova-compute")
    record.topic, record.last_seen_up = "compute", seen
    record.report_count = 7 + (record.report_count if found else 0)
    record.disabled, record.forced_down = disabled, forced_down
    (record.save if found else record.create)()


def write(told: Any) -> None:
    """Write what ``told`` describes into the databases of the configuration that was read."""
    owner = (told.get("project", "project"), told.get("user", "user"))
    mappings = objects.CellMappingList.get_all(context.get_admin_context())
    (cell,) = (one for one in mappings if one.uuid != objects.CellMapping.CELL0_UUID)
    with context.target_cell(context.get_admin_context(), cell) as ctxt:
        if "node" in told:
            compute_node(ctxt, told["node"])
        for one in told.get("servers", ()):
            fields = {"uuid": one} if isinstance(one, str) else dict(one)
            server(ctxt, cell, fields.pop("uuid"), owner, **fields)
        for one in told.get("migrations", ()):
            migration(ctxt, **one)
        if "service" in told:
            service(ctxt, **told["service"])


def main(file: str, text: str) -> None:
    """Write what ``text`` describes: ``node``, ``project``, ``user`` and the uuids of ``servers``."""
    config.parse_args(["nova-records", "--config-file", file])
    objects.register_all()
    write(json.loads(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
