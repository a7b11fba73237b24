"""Usages of projects and users, for limits and for quota."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.errors import PlacementRefused
from agent.placement.allocations.checks import owner_problems, refuse
from agent.placement.allocations.errors import UsagesFailed
from agent.placement.client import PlacementClient


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """The usage that counts for quota."""

    cores: int
    """Shared and dedicated CPUs."""
    ram: int
    """In MiB."""


@dataclass(frozen=True, slots=True)
class QuotaUsages:
    """The usage of a project, and of a user in it if one was given, read one after the other."""

    project: QuotaUsage
    user: QuotaUsage | None


def usages_for_limits(
    client: PlacementClient, project_id: str, user_id: str | None = None
) -> Mapping[str, int]:
    """Return the allocated amount of each class; a class without usage is missing.

    :raises UsagesFailed: Placement refused the request.
    :raises PlacementUnreachable: no answer came, four times.
    :raises BadRequest: the input is invalid.
    """
    refuse(_problems(project_id, user_id))
    try:
        return client.owner_usages(project_id, user_id)
    except PlacementRefused as error:
        raise UsagesFailed(f"no usages: {error.message}", error.remedy) from error


def usages_for_quota(
    client: PlacementClient, project_id: str, user_id: str | None = None
) -> QuotaUsages:
    """Return the usages in the units of quota.

    :raises UsagesFailed, PlacementUnreachable, BadRequest: as :func:`usages_for_limits`.
    """
    refuse(_problems(project_id, user_id))
    project = quota_usage(usages_for_limits(client, project_id))
    return QuotaUsages(
        project,
        None if user_id is None else quota_usage(usages_for_limits(client, project_id, user_id)),
    )


def quota_usage(usages: Mapping[str, int]) -> QuotaUsage:
    """Return amounts by class as cores and memory."""
    return QuotaUsage(usages.get("VCPU", 0) + usages.get("PCPU", 0), usages.get("MEMORY_MB", 0))


def _problems(project_id: str, user_id: str | None) -> Iterator[str]:
    return owner_problems(project_id, "nobody" if user_id is None else user_id)
