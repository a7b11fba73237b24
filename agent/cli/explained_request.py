"""The request that ``agent explain`` is asked about: a flavor from a file or from flags, the body
of a claim, or a query for allocation candidates.
"""

import difflib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from agent.api.body import read_json
from agent.api.problem import InvalidApiRequest
from agent.api.requests import MOST_GIB, MOST_VCPUS, NewClaim, instance_claim
from agent.cli.request_file import RequestUnreadable, display_name, read_request_file
from agent.errors import AgentError
from agent.explain.explanation import ExplainedRequest
from agent.explain.scheduler_query import (
    SchedulerQuery,
    property_faults,
    scheduler_query,
    spec_faults,
)
from agent.model.instance import Flavor, Instance
from agent.model.inventory import MAX_INT
from agent.model.names import ConsumerUuid, ProviderUuid, is_uuid, normal_uuid, printable
from agent.pci.device_request import EXTRA_SPEC, Aliases
from agent.placement.allocations.candidates import parse_query
from agent.placement.allocations.checks import refuse
from agent.tracker.stored_state import InstanceClaim

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

AMOUNT_FLAGS = {"vcpus": "vcpus", "ram": "memory_mb", "disk": "root_gb"}
"""Flag to the amount of a flavor."""


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
    guest: ConsumerUuid | None = None
    """A guest that is here, instead of a request."""

    def explained(self, aliases: Aliases, *, devices_in_placement: bool) -> ExplainedRequest:
        """Return the request with its query; not of a guest that is here.

        :raises BadRequest, InvalidTrackerRequest: no node could grant the request.
        """
        if self.claim is None:
            query = parse_query(self.words)
            refuse(query.problems())
            return ExplainedRequest(SchedulerQuery(query))
        query_of_claim = scheduler_query(
            self.claim, aliases, devices_in_placement=devices_in_placement
        )
        # Placement would refuse the scheduler's query too.
        refuse(query_of_claim.query.problems())
        return ExplainedRequest(query_of_claim, self.claim)


def asked_request(arguments: Mapping[str, Any]) -> AskedRequest:
    """Return the request of the command's arguments.

    :raises ExplainRefused: they are none, or two requests.
    :raises RequestUnreadable, NotJson: a file has no request.
    """
    flavored = any(arguments[name] not in (None, False, (), []) for name in FLAVOR_FLAGS)
    named = ("claim", "guest")
    forms = [flavored, bool(arguments["query"]), *(arguments[name] is not None for name in named)]
    if sum(forms) != 1:
        raise ExplainRefused(
            "no request to explain" if not any(forms) else "more than one request to explain",
            "give one: a flavor (--flavor FILE, or --vcpus and --ram), --claim FILE, --guest UUID, "
            "or KEY=VALUE words of a query",
        )
    if arguments["guest"] is not None:
        return AskedRequest(guest=_guest_named(arguments["guest"]))
    if arguments["query"]:
        return AskedRequest(words=arguments["query"])
    if arguments["claim"] is not None:
        asked = _claim_in(arguments["claim"])
    else:
        asked = AskedRequest(_claim_of_flavor(arguments))
    assert asked.claim is not None
    _refuse_ignored(asked.claim.instance)
    return asked


def _guest_named(text: str) -> ConsumerUuid:
    if not is_uuid(text):
        raise ExplainRefused(
            f"--guest {printable(text[:SHOWN])}: no uuid", "see the uuids: agent guests list"
        )
    return ConsumerUuid(normal_uuid(text))


def _refuse_ignored(instance: Instance) -> None:
    faults = [
        *spec_faults(instance.flavor.extra_specs),
        *property_faults(instance.image_properties),
    ]
    if faults:
        raise ExplainRefused(
            "; ".join(faults[:MOST_FAULTS]),
            "correct or remove what the message names, because nova ignores it",
        )


def _claim_in(file: str) -> AskedRequest:
    """Return the claim whose body is in the file, as the local API takes it."""
    body = read_request_file(file)
    named = body.get("node")
    given = {"id": CLAIM_ID, "node": NOBODY, **body}
    try:
        asked = read_json(json.dumps(given).encode(), NewClaim)
    except InvalidApiRequest as error:
        raise RequestUnreadable(
            f"{display_name(file)}: {error.message}", "write it as the local API takes a claim"
        ) from error
    claim = instance_claim(asked)
    return AskedRequest(claim, node=ProviderUuid(named) if isinstance(named, str) else None)


def _claim_of_flavor(arguments: Mapping[str, Any]) -> InstanceClaim:
    file = arguments["flavor"]
    faults = [
        f"--{flag}: {fault}"
        for flag, name in AMOUNT_FLAGS.items()
        if arguments[flag] is not None and (fault := amount_fault(arguments[flag], name))
    ]
    specs = _pairs(arguments["extra_spec"], "--extra-spec", faults)
    properties = _pairs(arguments["image_property"], "--image-property", faults)
    if faults:
        raise ExplainRefused("; ".join(faults), "correct the arguments that the message names")
    flavor = read_flavor(file) if file is not None else Flavor("", "", 0, 0)
    amounts = {
        name: int(arguments[flag])
        for flag, name in AMOUNT_FLAGS.items()
        if arguments[flag] is not None
    }
    flavor = replace(
        flavor,
        vcpus=amounts.get("vcpus", flavor.vcpus),
        memory_mb=amounts.get("memory_mb", flavor.memory_mb),
        root_gb=amounts.get("root_gb", flavor.root_gb),
        extra_specs={**flavor.extra_specs, **specs},
    )
    if arguments["alias"]:
        named = filter(None, [flavor.extra_specs.get(EXTRA_SPEC), *arguments["alias"]])
        specs = {**flavor.extra_specs, EXTRA_SPEC: ",".join(named)}
        flavor = replace(flavor, extra_specs=specs)
    if not flavor.vcpus or not flavor.memory_mb:
        raise ExplainRefused(
            f"{f'{display_name(file)}: ' if file is not None else ''}"
            "the flavor has no CPUs or no memory",
            "give --vcpus and --ram, or --flavor FILE",
        )
    instance = Instance(
        uuid=ConsumerUuid(CLAIM_ID),
        project_id="",
        user_id="",
        flavor=flavor,
        image_properties=properties,
        volume_backed=arguments["volume_backed"],
    )
    return InstanceClaim(id=CLAIM_ID, node=NOBODY, instance=instance)


def _pairs(words: Sequence[str], flag: str, faults: list[str]) -> dict[str, str]:
    """Return the pairs of KEY=VALUE words; what is wrong with them is added to ``faults``."""
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        shown = printable(word[:100])
        if not equals or not key:
            faults.append(f"{flag} {shown}: no KEY=VALUE")
        elif key in pairs:
            faults.append(f"{flag} {shown}: {printable(key[:100])} is given twice")
        elif len(value) > LONGEST_VALUE:
            faults.append(f"{flag} {shown}: a value of more than {LONGEST_VALUE} characters")
        pairs[key] = value
    return pairs


AMOUNTS = {
    "vcpus": ("vcpus",),
    "memory_mb": ("memory_mb", "ram"),
    "root_gb": ("root_gb", "disk"),
    "ephemeral_gb": ("ephemeral_gb", "ephemeral", "OS-FLV-EXT-DATA:ephemeral"),
    "swap_mb": ("swap_mb", "swap"),
}
"""The names of a flavor's amounts: of the local API, of ``openstack flavor show``, of nova."""
LARGEST = {
    "vcpus": MOST_VCPUS,
    "memory_mb": MAX_INT,
    "root_gb": MOST_GIB,
    "ephemeral_gb": MOST_GIB,
    "swap_mb": MAX_INT,
}
NAMES = ("id", "name")
SPECS = ("extra_specs", "properties")
WITHOUT_EFFECT = frozenset(
    {
        "OS-FLV-DISABLED:disabled",
        "access_project_ids",
        "description",
        "disabled",
        "is_disabled",
        "is_public",
        "links",
        "location",
        "original_name",
        "os-flavor-access:is_public",
        "rxtx_factor",
    }
)
"""What else nova and its clients tell of a flavor."""
LONGEST_VALUE = 4096
"""Characters of the value of an extra spec, as in the local API."""
MOST_FAULTS = 20
SHOWN = 80


def read_flavor(file: str) -> Flavor:
    """Return the flavor in the file; ``-`` is stdin.

    :raises RequestUnreadable: the file has no flavor; every fault is named with its key, up to
        :data:`MOST_FAULTS`.
    :raises NotJson: the file is no JSON document.
    """
    given = read_request_file(file)
    if isinstance(given.get("flavor"), dict) and len(given) == 1:
        given = given["flavor"]
    if faults := [*islice(_faults(given), MOST_FAULTS)]:
        raise RequestUnreadable(
            f"{display_name(file)}: {'; '.join(faults)}",
            "write the flavor with: openstack flavor show -f json",
        )
    amounts = {
        name: int(next((given[key] for key in keys if not _is_missing(given.get(key))), 0))
        for name, keys in AMOUNTS.items()
    }
    specs: Mapping[str, object] = next((given[key] for key in SPECS if given.get(key)), {})
    identity, name = (str(given.get(key) or "") for key in NAMES)
    return Flavor(
        identity, name, **amounts, extra_specs={key: str(value) for key, value in specs.items()}
    )


def _faults(given: Mapping[str, Any]) -> Iterator[str]:
    known = [*NAMES, *SPECS, *(key for keys in AMOUNTS.values() for key in keys)]
    for key in given:
        if key not in known and key not in WITHOUT_EFFECT:
            alike = difflib.get_close_matches(key[:SHOWN], known, n=1, cutoff=0.7)
            meant = f": did you mean {alike[0]}?" if alike else ""
            yield f"{printable(key[:SHOWN])} is no key of a flavor{meant}"
    for key in NAMES:
        value = given.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            yield f"{key}: {_shown(value)} is no text"
    for name, keys in AMOUNTS.items():
        there = [key for key in keys if not _is_missing(given.get(key))]
        yield from (f"{key}: {fault}" for key in there if (fault := amount_fault(given[key], name)))
        if len({str(given[key]) for key in there}) > 1:
            yield f"{' and '.join(there)} name the same amount and differ"
    yield from _spec_faults(given)


def _spec_faults(given: Mapping[str, Any]) -> Iterator[str]:
    there = [key for key in SPECS if given.get(key) is not None and given[key] != ""]
    for key in there:
        if not isinstance(given[key], dict):
            yield f"{key}: {_shown(given[key])} is no object"
            continue
        for name, value in given[key].items():
            place = f"{key}: {printable(name[:SHOWN])}"
            if not isinstance(value, str | int | float):
                yield f"{place}: {_shown(value)} is no text"
            elif len(str(value)) > LONGEST_VALUE:
                yield f"{place}: a value of more than {LONGEST_VALUE} characters"
    if len(there) > 1 and given[there[0]] != given[there[1]]:
        yield f"{' and '.join(there)} name the same and differ"


def amount_fault(value: Any, name: str) -> str:
    """Return what is wrong with an amount of a flavor, in words; empty if nothing is. ``name``: as
    the local API calls the amount.
    """
    text = str(value).strip() if isinstance(value, str | int) else ""
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()):
        return f"{_shown(value)} is no whole number of at least 0"
    # Python spends long on converting a number with very many digits.
    if len(text) > len(str(MAX_INT)) or int(text) > LARGEST[name]:
        return f"{_shown(value)} is more than {LARGEST[name]}"
    return ""


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = printable(repr(value))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
