"""What projects and users have allocated, for limits and for quota."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.errors import PlacementRefused
from agent.placement.allocations.checks import owner_problems, refuse
from agent.placement.allocations.errors import UsagesFailed
from agent.placement.client import PlacementClient


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """``cores``: CPUs, shared and dedicated; ``ram`` in MiB."""

    cores: int
    ram: int


@dataclass(frozen=True, slots=True)
class QuotaUsages:
    """Of a project, and of a user in it if one was asked for. The two are not of one moment."""

    project: QuotaUsage
    user: QuotaUsage | None


def usages_for_limits(
    client: PlacementClient, project_id: str, user_id: str | None = None
) -> Mapping[str, int]:
    """How much of each class is allocated; a class that is not in it is not used.

    :raises UsagesFailed: Placement does not say.
    :raises PlacementUnreachable: no answer came, four times.
    :raises BadRequest: the input makes no sense.
    """
    refuse(_problems(project_id, user_id))
    try:
        return client.owner_usages(project_id, user_id)
    except PlacementRefused as error:
        raise UsagesFailed(f"no usages: {error.message}", error.remedy) from error


def usages_for_quota(
    client: PlacementClient, project_id: str, user_id: str | None = None
) -> QuotaUsages:
    """The same as quota counts.

    :raises UsagesFailed, PlacementUnreachable, BadRequest: as :func:`usages_for_limits`.
    """
    refuse(_problems(project_id, user_id))
    project = quota_usage(usages_for_limits(client, project_id))
    return QuotaUsages(
        project,
        None if user_id is None else quota_usage(usages_for_limits(client, project_id, user_id)),
    )


def quota_usage(usages: Mapping[str, int]) -> QuotaUsage:
    """Amounts by class as cores and memory."""
    return QuotaUsage(usages.get("VCPU", 0) + usages.get("PCPU", 0), usages.get("MEMORY_MB", 0))


def _problems(project_id: str, user_id: str | None) -> Iterator[str]:
    return owner_problems(project_id, "nobody" if user_id is None else user_id)
