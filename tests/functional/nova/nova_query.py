"""Asks nova's own scheduler which query it would send for guests. Run by a Python that has nova.

The first line on standard input is the list of ``[pci] alias``, each further line a guest; each
answer is a line: the query as pairs, or why nova refuses the guest.
"""

import json
import sys
import uuid
from typing import Any
from urllib.parse import parse_qsl

import nova.monkey_patch

nova.monkey_patch.patch()

import nova.conf  # noqa: E402 - nova has to be patched before anything else of it is imported
from nova import context, exception, objects  # noqa: E402
from nova.objects import service  # noqa: E402
from nova.pci import request as pci_request  # noqa: E402
from nova.scheduler import request_filter, utils  # noqa: E402
from nova.virt import hardware  # noqa: E402

OWNER_SINCE = request_filter.MIN_COMPUTE_VERSION_OWNER_TRAIT


def query(asked: dict[str, Any]) -> list[tuple[str, str]]:
    """The query that the scheduler sends for a guest."""
    flavor = objects.Flavor(
        id=1, flavorid="f", name="F", swap=asked["swap_mb"], extra_specs=asked["specs"],
        **{name: asked[name] for name in ("vcpus", "memory_mb", "root_gb", "ephemeral_gb")},
    )  # fmt: skip
    image = objects.ImageMeta.from_dict(
        {"id": str(uuid.uuid4()), "name": "image", "properties": asked["properties"]}
    )
    # nova's API does the same before the scheduler gets the request.
    hardware.numa_get_constraints(flavor, image)
    spec = objects.RequestSpec.from_components(
        context.get_admin_context(),
        str(uuid.uuid4()),
        image,
        flavor,
        None,
        pci_request.get_pci_requests_from_flavor(flavor),
        {},
        None,
        None,
    )
    spec.is_bfv = asked["volume_backed"]
    spec.requested_networks = objects.NetworkRequestList(objects=[])
    request_filter.process_reqspec(spec._context, spec)
    found = utils.resources_from_request_spec(spec._context, spec, None)
    return parse_qsl(found.to_querystring(), keep_blank_values=True)


def main() -> None:
    """Answer until standard input ends."""
    nova.conf.CONF([], project="nova", default_config_files=[])
    nova.conf.CONF.set_override("pci_in_placement", True, group="filter_scheduler")
    nova.conf.CONF.set_override("alias", json.loads(sys.stdin.readline()), group="pci")
    objects.register_all()
    # There is no database. All services are of this version.
    service.get_minimum_version_all_cells = lambda *_: OWNER_SINCE
    for line in sys.stdin:
        answer: dict[str, Any] = {}
        try:
            answer["query"] = query(json.loads(line))
        except (exception.NovaException, ValueError) as error:
            answer["refused"] = [type(error).__name__, str(error)]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
