"""``agent usages``: how much a project has allocated, and what of it counts for quota."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.placement_work import finish, placement_work
from agent.model.names import number_of, printable
from agent.placement.allocations.checks import owner_problems, refuse
from agent.placement.allocations.usages import quota_usage, usages_for_limits


def show_usages(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show it; the project's and the user's are not of one moment.

    :raises UsagesFailed: Placement does not say.
    """
    project, user = options.arguments["project"], options.arguments["user_id"]
    refuse(owner_problems(project, "nobody" if user is None else user))
    with placement_work(conf, options, "usages", writes=False) as work:
        of_project = usages_for_limits(work.client, project)
        of_user = None if user is None else usages_for_limits(work.client, project, user)
        lines = list(_usage_lines(f"project {printable(project)}", of_project))
        if of_user is not None:
            lines += _usage_lines(f"user {printable(user)}", of_user)
        result = {"project": _usage_row(project, of_project), "user": None if of_user is None else _usage_row(user, of_user)}
        return finish(work, options, "usages", result, lines)


def _usage_row(owner: str, usages: Mapping[str, int]) -> dict[str, Any]:
    return {"id": owner, "usages": usages, "quota": asdict(quota_usage(usages))}


def _usage_lines(owner: str, usages: Mapping[str, int]) -> Iterator[str]:
    quota = quota_usage(usages)
    yield f"{owner}: {number_of(quota.cores, 'core')}, {quota.ram} MiB of memory"
    for name, amount in sorted(usages.items()):
        yield f"  {name} {amount}"
