"""The query for allocation candidates that nova's scheduler sends for a guest, built from flavor
and image, as nova 34 builds it. Pure.

What other services and the options of the scheduler add is unknown here: ports, accelerators,
availability zones, host aggregates.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import os_resource_classes as orc
import os_traits

from agent.explain.guest_features import feature_request
from agent.model.instance import Flavor
from agent.numa.flavor_and_image import FlavorAndImage
from agent.pci.alias import Aliases, device_groups
from agent.pci.device_request import DeviceRequestError, device_requests
from agent.placement.allocations.candidates import POLICIES, CandidateQuery, RequestGroup
from agent.tracker.errors import InvalidDevices
from agent.tracker.requests import InstanceClaim
from agent.tracker.reserving import guest_topology

MAX_RESULTS = 1000
"""nova's default of ``[scheduler] max_placement_results``."""
OVERRIDE = re.compile(r"(resources|trait)([A-Za-z0-9_-]{1,64})?:(.+)")
GROUP_POLICY = "group_policy"
REQUIRED, FORBIDDEN = "required", "forbidden"


@dataclass(frozen=True, slots=True)
class SchedulerQuery:
    """A query, and which of its groups an alias stands for."""

    query: CandidateQuery
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Suffix of a group to the alias that requests its device."""


@dataclass(slots=True)
class _QueryBuilder:
    """The groups while the query is built."""

    resources: dict[str, dict[str, int]] = field(default_factory=dict)
    """Suffix to class to amount. An amount of 0 keeps the class out of the query."""
    required: dict[str, set[str]] = field(default_factory=dict)
    forbidden: dict[str, set[str]] = field(default_factory=dict)
    policy: str | None = None
    named: set[str] = field(default_factory=set)
    """The suffixes that the flavor names, also of groups that request nothing."""

    def has(self, *names: str) -> bool:
        """Return whether a group names one of the classes, an amount of 0 included."""
        return any(name in amounts for amounts in self.resources.values() for name in names)

    def add(self, name: str, amount: int, suffix: str = "") -> None:
        self.resources.setdefault(suffix, {})[name] = amount

    def require(self, *traits: str, suffix: str = "") -> None:
        self.required.setdefault(suffix, set()).update(traits)

    def forbid(self, *traits: str, suffix: str = "") -> None:
        self.forbidden.setdefault(suffix, set()).update(traits)

    def groups(self) -> Iterator[RequestGroup]:
        """Yield the groups, the one without a suffix first."""
        for suffix in sorted({*self.resources, *self.required, *self.forbidden}):
            amounts = {
                name: amount for name, amount in self.resources.get(suffix, {}).items() if amount
            }
            required = frozenset(self.required.get(suffix, ()))
            forbidden = frozenset(self.forbidden.get(suffix, ()))
            if amounts or required or forbidden:
                yield RequestGroup(suffix, amounts, required, forbidden)


def scheduler_query(
    claim: InstanceClaim, aliases: Aliases, *, devices_in_placement: bool
) -> SchedulerQuery:
    """Return the query for the guest that ``claim`` describes.

    ``devices_in_placement``: whether aliases become groups, as with ``[pci] report_in_placement``.

    :raises InvalidTrackerRequest: flavor and image contradict each other, or ask for something
        impossible.
    """
    flavor, builder = claim.instance.flavor, _QueryBuilder()
    settings = FlavorAndImage(flavor.extra_specs, claim.instance.image_properties)
    _add_overrides(builder, settings)
    _add_cpus(builder, claim)
    if not builder.has(orc.MEMORY_MB):
        builder.add(orc.MEMORY_MB, flavor.memory_mb)
    if not builder.has(orc.DISK_GB):
        builder.add(orc.DISK_GB, _disk_gb(flavor, volume_backed=claim.instance.volume_backed))
    features = feature_request(settings)
    for name, amount in features.resources.items():
        builder.add(name, amount)
    builder.require(*features.traits)
    suffixes = _add_devices(builder, claim, aliases, settings) if devices_in_placement else {}
    groups = tuple(builder.groups())
    several = sum(bool(group.suffix) for group in groups) > 1
    if builder.policy is None and several and len(builder.named) <= 1:
        # Placement refuses several groups without a policy. Of groups that the flavor names, the
        # flavor has to give the policy.
        builder.policy = "none"
    return SchedulerQuery(
        CandidateQuery(
            groups,
            policy=builder.policy,
            root_required=features.root_traits,
            root_forbidden=frozenset({os_traits.COMPUTE_STATUS_DISABLED}),
            limit=MAX_RESULTS,
        ),
        suffixes,
    )


def _add_overrides(builder: _QueryBuilder, settings: FlavorAndImage) -> None:
    """Add the classes, traits and the policy that the flavor names, and the image's traits."""
    for key, value in settings.specs.items():
        if key == GROUP_POLICY and value in POLICIES:
            builder.policy = value
        elif (found := OVERRIDE.fullmatch(key)) is not None:
            kind, suffix, name = found[1], found[2] or "", found[3]
            builder.named |= {suffix} - {""}
            if kind == "resources":
                _add_amount(builder, name, value, suffix)
            elif value == REQUIRED:
                builder.require(name, suffix=suffix)
            elif value == FORBIDDEN:
                builder.forbid(name, suffix=suffix)
    for key, value in settings.properties.items():
        # A trait that the image forbids has no effect.
        if key.startswith("trait:") and value == REQUIRED:
            builder.require(key.removeprefix("trait:"))


def _add_amount(builder: _QueryBuilder, name: str, text: str, suffix: str) -> None:
    """Add the amount of a class that the flavor names. nova ignores an amount that is none, and a
    class that cannot exist.
    """
    try:
        amount = int(text)
    except ValueError:
        return
    if amount >= 0 and (name.startswith(orc.CUSTOM_NAMESPACE) or name in orc.STANDARDS):
        builder.add(name, amount, suffix)


def _add_cpus(builder: _QueryBuilder, claim: InstanceClaim) -> None:
    flavor, properties = claim.instance.flavor, claim.instance.image_properties
    guest = guest_topology(flavor, properties)
    settings = FlavorAndImage(flavor.extra_specs, properties)
    if guest is not None and guest.pinned:
        if settings.flavor("cpu_policy") or settings.image("cpu_policy"):
            # In place of amounts of the flavor, which are 0 then.
            cells = range(len(guest.cells))
            pinned = sum(len(guest.cells[row].dedicated) for row in cells)
            builder.add(orc.PCPU, pinned + sum(map(guest.emulator_cpus, cells)))
            if shared := sum(len(cell.shared) for cell in guest.cells):
                builder.add(orc.VCPU, shared)
        threads = settings.flavor("cpu_thread_policy") or settings.image("cpu_thread_policy")
        if threads is not None and guest.thread_policy == "require":
            builder.require(os_traits.HW_CPU_HYPERTHREADING)
        elif threads is not None and guest.thread_policy == "isolate":
            builder.forbid(os_traits.HW_CPU_HYPERTHREADING)
    if not builder.has(orc.VCPU, orc.PCPU):
        builder.add(orc.VCPU, flavor.vcpus)


def _disk_gb(flavor: Flavor, *, volume_backed: bool) -> int:
    root = 0 if volume_backed else flavor.root_gb
    return root + flavor.ephemeral_gb + -(-flavor.swap_mb // 1024)


def _add_devices(
    builder: _QueryBuilder, claim: InstanceClaim, aliases: Aliases, settings: FlavorAndImage
) -> dict[str, str]:
    """Add a group for each device that the flavor's aliases request. Return the alias of each
    suffix.
    """
    try:
        requests = device_requests(settings.specs, aliases, None, claim.id)
    except DeviceRequestError as error:
        raise InvalidDevices(error.message, error.remedy) from error
    suffixes = {}
    for request in requests:
        if request.alias is None:
            continue
        # With devices in Placement an alias has one alternative.
        for group in device_groups(
            request.id, request.count, aliases[request.alias].alternatives[0]
        ):
            suffixes[group.suffix] = request.alias
            for name, amount in group.resources.items():
                builder.add(name, amount, group.suffix)
            builder.require(*group.required, suffix=group.suffix)
            builder.forbid(*group.forbidden, suffix=group.suffix)
    return suffixes
