"""``agent candidates`` and ``agent usages``: queries of allocation candidates, and of what projects
and users have allocated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from oslo_config import cfg

from agent.cli.command import Options
from agent.cli.commands.placement.allocation import holdings_lines
from agent.cli.placement_work import finish, placement_work
from agent.model.names import ProviderUuid, number_of, printable
from agent.placement.allocations.candidates import (
    Candidates,
    candidates,
    check_candidates_offered,
    parse_query,
)
from agent.placement.allocations.checks import owner_problems, refuse
from agent.placement.allocations.providers import quota_usage, usages_for_limits
from agent.placement.client import PlacementClient


def show_usages(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the usages of a project and of a user. The two are read one after the other. Return the
    exit code.

    :raises UsagesFailed: Placement refuses the query.
    """
    project, user = options.arguments["project"], options.arguments["user_id"]
    refuse(owner_problems(project, "nobody" if user is None else user))
    with placement_work(conf, options, "usages", writes=False) as work:
        of_project = usages_for_limits(work.client, project)
        of_user = None if user is None else usages_for_limits(work.client, project, user)
        lines = list(_usage_lines(f"project {printable(project)}", of_project))
        if of_user is not None:
            lines += _usage_lines(f"user {printable(user)}", of_user)
        result = {
            "project": _usage_row(project, of_project),
            "user": None if of_user is None else _usage_row(user, of_user),
        }
        return finish(work, options, "usages", result, lines)


def _usage_row(owner: str, usages: Mapping[str, int]) -> dict[str, Any]:
    return {"id": owner, "usages": usages, "quota": asdict(quota_usage(usages))}


def _usage_lines(owner: str, usages: Mapping[str, int]) -> Iterator[str]:
    quota = quota_usage(usages)
    yield f"{owner}: {number_of(quota.cores, 'core')}, {quota.ram} MiB of memory"
    for name, amount in sorted(usages.items()):
        yield f"  {name} {amount}"


def show_candidates(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show the candidates for a query; no error if there are none. Return the exit code.

    :raises BadRequest, CandidatesFailed: the query is invalid.
    """
    query = parse_query(options.arguments["query"])
    with placement_work(conf, options, "candidates", writes=False) as work:
        check_candidates_offered(work.capabilities)
        found = candidates(work.client, query)
        names = _names(work.client, found)
        lines = [
            number_of(len(found.requests), "candidate")
            if found.requests
            else "no candidates: nothing fits"
        ]
        for place, request in enumerate(found.requests, 1):
            lines += [f"candidate {place}", *holdings_lines(request.resources, names)]
        result = {
            "version": found.version,
            "providers": names,
            "allocation_requests": [request.body for request in found.requests],
            "provider_summaries": {
                uuid: {**asdict(summary), "traits": sorted(summary.traits)}
                for uuid, summary in found.summaries.items()
            },
        }
        return finish(work, options, "candidates", result, lines)


def _names(client: PlacementClient, found: Candidates) -> Mapping[ProviderUuid, str]:
    """Return the names of all providers that are shown. One request for each tree."""
    roots = sorted({summary.root_uuid for summary in found.summaries.values()})
    return {row.uuid: row.name for rows in client.exchange.each(client.tree, roots) for row in rows}
