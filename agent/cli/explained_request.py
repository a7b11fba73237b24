"""The request that ``agent explain`` is asked about: a flavor from a file or from flags, the body
of a claim, or a query for allocation candidates.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.api.description import JSON, RequestSchema, build_registry, read
from agent.api.documents.requests import instance_claim
from agent.cli.daemon_client import RequestUnreadable, read_request_file
from agent.errors import AgentError
from agent.explain.explanation import ExplainedRequest
from agent.explain.scheduler_query import SchedulerQuery, scheduler_query
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid, ProviderUuid, printable
from agent.pci.alias import Aliases
from agent.pci.device_request import EXTRA_SPEC
from agent.placement.allocations.candidates import parse_query
from agent.placement.allocations.checks import refuse
from agent.tracker.request_checks import check_claim
from agent.tracker.requests import InstanceClaim

NOBODY = ProviderUuid("00000000-0000-0000-0000-000000000000")
# Constant, so that the same request has the same query: the suffixes of the groups of devices
# depend on it.
CLAIM_ID = str(uuid.uuid5(uuid.NAMESPACE_DNS, "agent-explain"))
FLAVOR_FLAGS = (
    "flavor",
    "vcpus",
    "ram",
    "disk",
    "extra_spec",
    "image_property",
    "alias",
    "volume_backed",
)
AMOUNTS = {
    "vcpus": ("vcpus",),
    "memory_mb": ("memory_mb", "ram"),
    "root_gb": ("root_gb", "disk"),
    "ephemeral_gb": ("ephemeral_gb", "ephemeral", "OS-FLV-EXT-DATA:ephemeral"),
    "swap_mb": ("swap_mb", "swap"),
}
"""The names of a flavor's amounts: of the local API, of ``openstack flavor show``, of nova."""


class ExplainRefused(AgentError):
    """The arguments of ``agent explain`` are no request: a flavor, a claim or a query.

    Remedy: correct the argument that the message names.
    """

    code = "explain.request"


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """The request as the command line has it, before the node's aliases are known."""

    claim: InstanceClaim | None = None
    words: Sequence[str] = ()
    """A query for candidates."""
    node: ProviderUuid | None = None
    """The node that the body of a claim names."""

    def explained(self, aliases: Aliases, *, devices_in_placement: bool) -> ExplainedRequest:
        """Return the request with its query.

        :raises BadRequest, InvalidTrackerRequest: no node could grant the request.
        """
        if self.claim is None:
            query = parse_query(self.words)
            refuse(query.problems())
            return ExplainedRequest(SchedulerQuery(query))
        query_of_claim = scheduler_query(
            self.claim, aliases, devices_in_placement=devices_in_placement
        )
        return ExplainedRequest(query_of_claim, self.claim)


def asked_request(arguments: Mapping[str, Any]) -> AskedRequest:
    """Return the request of the command's arguments.

    :raises ExplainRefused: they are none, or two requests.
    :raises RequestUnreadable, NotJson, TooManyValues: a file has no request.
    :raises InvalidTrackerRequest: no node could grant the request.
    """
    flavored = any(arguments[name] for name in FLAVOR_FLAGS)
    forms = [flavored, bool(arguments["claim"]), bool(arguments["query"])]
    if sum(forms) != 1:
        raise ExplainRefused(
            "no request to explain" if not any(forms) else "more than one request to explain",
            "give one: a flavor (--flavor FILE, or --vcpus and --ram), --claim FILE, or KEY=VALUE "
            "words of a query",
        )
    if arguments["query"]:
        return AskedRequest(words=arguments["query"])
    if arguments["claim"]:
        return _claim_in(arguments["claim"])
    claim = _claim_of_flavor(arguments)
    check_claim(claim)
    return AskedRequest(claim)


def _claim_in(file: str) -> AskedRequest:
    """Return the claim whose body is in the file, as the local API takes it."""
    body = read_request_file(file)
    named = body.get("node")
    given = {"id": CLAIM_ID, "node": NOBODY, **body}
    document = read()
    schema = document["paths"]["/v1/claims"]["post"]["requestBody"]["content"][JSON]["schema"]
    faults = list(RequestSchema(schema, build_registry(document)).faults(given))
    if faults:
        raise RequestUnreadable(
            f"{printable(file)}: {'; '.join(f'{where} {why}'.strip() for where, why in faults)}",
            "write it as the local API takes a claim",
        )
    claim = instance_claim(given)
    check_claim(claim)
    return AskedRequest(claim, node=ProviderUuid(named) if isinstance(named, str) else None)


def _claim_of_flavor(arguments: Mapping[str, Any]) -> InstanceClaim:
    flavor = _flavor_in(arguments["flavor"]) if arguments["flavor"] else Flavor("", "", 0, 0)
    flavor = replace(
        flavor,
        vcpus=_given(arguments, "vcpus", flavor.vcpus),
        memory_mb=_given(arguments, "ram", flavor.memory_mb),
        root_gb=_given(arguments, "disk", flavor.root_gb),
    )
    specs = {**flavor.extra_specs, **_pairs(arguments["extra_spec"], "--extra-spec")}
    if arguments["alias"]:
        specs[EXTRA_SPEC] = ",".join(filter(None, [specs.get(EXTRA_SPEC), *arguments["alias"]]))
    if not flavor.vcpus or not flavor.memory_mb:
        raise ExplainRefused(
            "the flavor has no CPUs or no memory", "give --vcpus and --ram, or --flavor FILE"
        )
    instance = Instance(
        uuid=ConsumerUuid(CLAIM_ID),
        project_id="",
        user_id="",
        flavor=replace(flavor, extra_specs=specs),
        image_properties=_pairs(arguments["image_property"], "--image-property"),
        volume_backed=arguments["volume_backed"],
    )
    return InstanceClaim(id=CLAIM_ID, node=NOBODY, instance=instance)


def _given(arguments: Mapping[str, Any], key: str, otherwise: int) -> int:
    """Return the amount of a flag, ``otherwise`` without the flag."""
    return _amount(arguments[key], f"--{key}") if arguments[key] else otherwise


def _flavor_in(file: str) -> Flavor:
    """Return the flavor in a file: as the local API takes it, or as ``openstack flavor show`` or
    nova's API shows it.
    """
    given = read_request_file(file)
    if isinstance(given.get("flavor"), dict):
        given = given["flavor"]
    amounts = {
        name: _amount(next((given[key] for key in keys if given.get(key)), 0), keys[0])
        for name, keys in AMOUNTS.items()
    }
    specs = given.get("extra_specs") or given.get("properties") or {}
    if not isinstance(specs, dict):
        raise RequestUnreadable(
            f"{printable(file)}: its properties are no object",
            "write the flavor with: openstack flavor show -f json",
        )
    return Flavor(
        str(given.get("id", "")),
        str(given.get("name", "")),
        **amounts,
        extra_specs={str(key): str(value) for key, value in specs.items()},
    )


def _pairs(words: Sequence[str], flag: str) -> dict[str, str]:
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ExplainRefused(f"{flag} {printable(word)}: no KEY=VALUE", "write KEY=VALUE")
        pairs[key] = value
    return pairs


def _amount(value: Any, name: str) -> int:
    text = str(value).strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise ExplainRefused(f"{name} {printable(text)}: no whole number", "give a whole number")
    return int(text)
