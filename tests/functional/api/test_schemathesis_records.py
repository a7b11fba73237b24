"""Requests that a machine makes up about nodes, guests and claims that there are: most of them do
something.
"""

import copy
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from agent.api.openapi import read
from tests.support import backends
from tests.support.placement import PlacementServer
from tests.support.site import claim_body, move_body, site_here, with_devices
from tests.support.tracking import F1, F3, PMEM, domain, settled, uuid_of
from tests.support.unix_requests import session
from tests.unit.render.reports import node, report

backends.require("schemathesis")
import schemathesis  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi import checks  # noqa: E402

pytestmark = pytest.mark.long

EXAMPLES = 25 * int(os.environ.get("API_EXAMPLES", "12"))
"""Requests of all operations together."""

# Few, so that they meet.
NODES = {"enum": [uuid_of("HA")]}
INSTANCES = {"enum": [uuid_of(f"i{number}") for number in range(1, 12)]}
CLAIMS = {
    "enum": [
        *(uuid_of(name) for name in ("claim-i1", "claim-i2", "move-i2")),
        *(uuid_of(f"claim {number}") for number in range(12)),
    ]
}
KNOWN = {"uuid": INSTANCES, "id": CLAIMS, "node": NODES, "instance": INSTANCES}
INSTANCE_PARTS = ("NewInstance", "MovingInstance")
REQUESTS = ("NewClaim", "NewMove", "NewDeviceClaim", *INSTANCE_PARTS)
TEXTS = {
    "type": "object",
    "properties": {"kind": {"const": "gpu"}},
    "additionalProperties": False,
}


def narrowed() -> dict[str, Any]:
    """openapi.yaml with little else to choose from than what there is."""
    document: dict[str, Any] = copy.deepcopy(dict(read()))
    schemas = document["components"]["schemas"]
    uuid = schemas["Uuid"]["pattern"]
    for name in REQUESTS:
        properties = schemas[name]["properties"]
        properties.update(
            {
                key: KNOWN[key]
                for key in KNOWN.keys() & properties.keys()
                if properties[key].get("pattern") == uuid
            }
        )
        if "allocations" in properties:
            properties["allocations"]["propertyNames"] = NODES
        if "devices" in properties:
            properties["devices"]["maxItems"] = 1
    for name in INSTANCE_PARTS:
        schemas[name]["properties"].update(
            host={"enum": [None, "HA"]}, node={"enum": [None, uuid_of("HA")]}
        )
    for name in (*INSTANCE_PARTS, "InstanceChanges"):
        schemas[name]["properties"]["image_properties"] = TEXTS
    schemas["AllocatedResources"]["properties"]["resources"]["propertyNames"] = {
        "enum": [PMEM, "VCPU"]
    }
    # Enough for everybody most of the time.
    for name in ("memory_mb", "vcpus", "disk_mb"):
        schemas["Limits"]["properties"][name] = {"enum": [100_000]}
    schemas["NewFlavor"]["properties"].update(
        vcpus={"enum": [1, 2]},
        extra_specs=TEXTS,
        **{name: {"enum": [0, 1, 512]} for name in ("memory_mb", "root_gb", "swap_mb")},
    )
    schemas["NewDevices"]["properties"].update(count={"enum": [1, 2]}, spec=TEXTS)
    for path, item in document["paths"].items():
        of_path = NODES if "nodes" in path else INSTANCES if "{uuid}" in path else CLAIMS
        for operation in item.values():
            operation["parameters"] = [
                _narrowed(one, of_path) for one in operation.get("parameters", ())
            ]
    return document


def _narrowed(parameter: dict[str, Any], of_path: dict[str, Any]) -> dict[str, Any]:
    if parameter["in"] == "path":
        return {**parameter, "schema": of_path}
    if parameter["name"] == "If-Match":
        return {**parameter, "schema": {"enum": [f'"{number}"' for number in range(1, 6)]}}
    return {**parameter, "schema": KNOWN.get(parameter["name"], parameter["schema"])}


described = schemathesis.openapi.from_dict(narrowed()).include(
    path_regex=r"^/v1/(claims|moves|devices|guests|instances|migrations|nodes)"
)
described.config.generation.update(modes=[schemathesis.GenerationMode.POSITIVE])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """HA with devices and units, i1 there and i2 about to be resized, and a guest that no record
    knows.
    """
    with site_here(tmp_path_factory.mktemp("records"), PlacementServer()) as found:
        ha = found.serve(with_devices(found.world.pmem("HA")))
        found.api.service.take_report(
            report(nodes=(node(name="HA", uuid=ha.node, state="in-sync", errors=()),)), whole=True
        )
        for name in ("i1", "i2"):
            found.call("POST", "/v1/claims", claim_body(ha, name, F1))
        found.call("POST", "/v1/moves", move_body(ha, "i2", "resize", F3))
        ha.audit(domains=(domain("i1", 2048, 1), domain("stray", 512, 1)))
        yield found, ha


@pytest.fixture(scope="module")
def talk(site):
    with session(site[0].api.path) as found:
        yield found


@given(case=described.as_strategy())
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
def test_whatever_is_asked_the_answer_is_as_described_and_the_records_add_up(site, talk, case):
    _, ha = site
    case.call_and_validate(
        base_url="http://localhost",
        session=talk,
        checks=[
            not_a_server_error,
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_headers_conformance,
            checks.response_schema_conformance,
        ],
    )
    settled(ha)
