"""``agent decommission``, ``pci unreport``, ``aggregate``, ``candidates`` and ``usages``: what
Placement has of hosts, and what of it is free or allocated.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.cli.command import Commands, Options
from agent.cli.commands.allocation import holdings_lines
from agent.cli.placement_work import finish, placement_work
from agent.errors import AgentError, ConfigError
from agent.model.names import (
    ConsumerUuid,
    ProviderUuid,
    is_uuid,
    name_first,
    number_of,
    printable,
)
from agent.placement.allocations.candidates import (
    Candidates,
    candidates,
    check_candidates_offered,
    parse_query,
)
from agent.placement.allocations.checks import (
    ProviderNotFound,
    consumer_uuid,
    owner_problems,
    provider_uuid,
    refuse,
)
from agent.placement.allocations.host import (
    Decommissioned,
    Retired,
    add_host,
    decommission,
    remove_host,
    retire,
)
from agent.placement.allocations.records import provider_by, quota_usage, usages_for_limits
from agent.placement.answers import Row
from agent.placement.client import PlacementClient
from agent.store.lock import RunLock
from agent.store.reading import RecordReader, every
from agent.store.records import Records
from agent.store.store import open_read_only
from agent.tree.reported_cards import MARKER, card_of

UNREPORT = "pci-unreport"


def unreport_pci(conf: cfg.ConfigOpts, options: Options) -> int:
    """Delete the node's PCI providers. Those that guests use stay, and the agent does not start
    before they are gone. Return the exit code.

    :raises AllocationError: there is no such node.
    :raises ConfigError: the devices are configured to be reported, and would be again.
    :raises StoreLocked: an agent runs.
    """
    if conf.pci.report_in_placement:
        raise ConfigError(
            "[pci] report_in_placement is true: the devices would be reported again",
            "set it to false first",
        )
    with placement_work(conf, options, UNREPORT, writes=True) as work, ExitStack() as stack:
        root = provider_by(work.client, options.arguments["root"])
        if not (options.dry_run or work.embedded):
            stack.enter_context(RunLock(Path(conf.store.path)))
        done = retire(
            work.client, root.uuid, MARKER, lambda name: card_of(name, root.name) is not None
        )
        lines = list(_unreport_lines(root, done, dry_run=options.dry_run))
        names = {row.uuid: row.name for row in done.found}
        result = {
            "root": {"uuid": root.uuid, "name": root.name},
            "deleted": {uuid: names[uuid] for uuid in done.deleted},
            "kept": {uuid: error.message for uuid, error in done.kept.items()},
        }
        return finish(work, options, UNREPORT, result, lines, list(done.kept.values()))


def _unreport_lines(root: Row, done: Retired, *, dry_run: bool) -> Iterator[str]:
    left = f", {len(done.kept)} kept" if done.kept else ""
    what = "to be deleted" if dry_run else "deleted"
    yield (
        f"node {printable(root.name)} ({root.uuid}): {number_of(len(done.deleted), 'provider')} "
        f"of devices {what}{left}"
    )
    yield from (f"  {printable(row.name)}" for row in done.found if row.uuid in done.deleted)


def decommission_node(conf: cfg.ConfigOpts, options: Options) -> int:
    """Release the consumers that the command line or the records name from the node, and delete its
    providers. Other consumers are reported and stay. Return the exit code.

    Without ``--all-providers`` only the root and the providers are deleted that the store's journal
    has as the agent's.

    :raises AllocationError: the request is invalid.
    :raises StoreLocked: an agent runs that manages the node, and would create it again.
    """
    given = options.arguments
    known, evacuated = (
        [consumer_uuid(consumer) for consumer in given[some]] for some in ("consumer", "evacuated")
    )
    with placement_work(conf, options, "decommission", writes=True) as work, ExitStack() as stack:
        try:
            root = provider_by(work.client, given["root"])
        except ProviderNotFound as error:
            if not is_uuid(given["root"]):
                what = f"there is no provider called {printable(given['root'])!r}"
                raise ProviderNotFound(
                    what,
                    (
                        "check its name; to repeat a decommission that was done give the uuid of "
                        "the root, which is no error"
                    ),
                ) from error
            # No error, so that an interrupted decommission can be repeated.
            return finish(
                work,
                options,
                "decommission",
                _document(None, None),
                [f"node {given['root']} is not in Placement"],
            )
        ours, recorded = _recorded_by_store(conf, root.uuid)
        if ours and not (options.dry_run or work.embedded):
            stack.enter_context(RunLock(Path(conf.store.path)))
        owned = None if given["all_providers"] else ours | {root.uuid}
        done = decommission(
            work.client, root.uuid, known={*known, *recorded}, evacuated=evacuated, owned=owned
        )
        lines = list(_lines(root, done, dry_run=options.dry_run))
        errors: list[AgentError] = [*done.released.failed.values(), *done.kept.values()]
        return finish(work, options, "decommission", _document(root, done), lines, errors)


def _recorded_by_store(
    conf: cfg.ConfigOpts, root: ProviderUuid
) -> tuple[frozenset[ProviderUuid], frozenset[ConsumerUuid]]:
    """Return the node's providers that the store's journal has, and the consumers that the records
    have for the node.
    """
    with open_read_only(Path(conf.store.path), conf.store.connection) as store:
        providers = frozenset(store.journal(root).providers)
        with Records(store).reading() as reading:
            return providers, frozenset(_recorded_consumers(reading, root))


def _recorded_consumers(reading: RecordReader, root: ProviderUuid) -> Iterator[ConsumerUuid]:
    """Yield the node's instances, those that moved from or to the node, and their migrations."""
    for instance in every(lambda marker: reading.instances([root], marker)):
        yield instance.uuid
    for migration in every(lambda marker: reading.migrations([root], marker)):
        yield from (migration.uuid, migration.instance)


def _document(root: Row | None, done: Decommissioned | None) -> Mapping[str, Any]:
    return {
        "root": {"uuid": root.uuid, "name": root.name} if root else None,
        "released": done.released.done if done else {},
        "not_released": {uuid: error.message for uuid, error in done.released.failed.items()}
        if done
        else {},
        "deleted": done.deleted if done else [],
        "kept": {uuid: error.message for uuid, error in done.kept.items()} if done else {},
        "unknown_consumers": done.unknown if done else {},
    }


def _lines(root: Row, done: Decommissioned, *, dry_run: bool) -> Iterator[str]:
    would = "to be deleted" if dry_run else "deleted"
    left = "" if done.complete else f", {len(done.kept)} kept"
    yield (
        f"node {printable(root.name)} ({root.uuid}): {number_of(len(done.deleted), 'provider')} "
        f"{would}{left}"
    )
    for consumer, providers in done.released.done.items():
        yield (
            f"  {number_of(providers, 'provider')} {'would be ' if dry_run else ''}removed from "
            f"the allocation of consumer {consumer}"
        )
    for consumer, where in done.unknown.items():
        yield (
            f"  consumer {consumer} is not known to be of this node and keeps what it has on "
            f"{name_first(where)}"
        )


def _remove(client: PlacementClient, aggregate: str, *, provider: ProviderUuid) -> bool:
    if remove_host(client, aggregate, provider=provider):
        return True
    if not client.members(aggregate):
        raise ProviderNotFound(
            f"no host is in aggregate {aggregate}",
            "check its uuid: openstack aggregate show displays it",
        )
    return False


def _change_aggregate(
    conf: cfg.ConfigOpts,
    options: Options,
    *,
    name: str,
    operation: Callable[..., bool],
    words: tuple[str, str],
) -> int:
    """Put the host into the aggregate, or take it out; no error if it is in or out already, as long
    as other hosts are in it. Return the exit code.

    :raises AllocationError: there is no such host, no host is in that aggregate, or it cannot be
        written.
    """
    aggregate = provider_uuid(options.arguments["aggregate"], "aggregate")
    already, done = words
    with placement_work(conf, options, name, writes=True) as work:
        host = provider_by(work.client, options.arguments["host"])
        changed = operation(work.client, aggregate, provider=host.uuid)
        how = f"{'would be' if options.dry_run else 'was'} {done}" if changed else f"is {already}"
        result = {
            "aggregate": aggregate,
            "host": {"uuid": host.uuid, "name": host.name},
            "changed": changed,
        }
        return finish(
            work,
            options,
            name,
            result,
            [f"host {printable(host.name)} {how} aggregate {aggregate}"],
        )


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


RUN: Commands = {
    ("candidates",): show_candidates,
    ("aggregate", "add-host"): partial(
        _change_aggregate,
        name="aggregate-add-host",
        operation=add_host,
        words=("in", "put into"),
    ),
    ("aggregate", "remove-host"): partial(
        _change_aggregate,
        name="aggregate-remove-host",
        operation=_remove,
        words=("not in", "taken out of"),
    ),
    ("usages",): show_usages,
    ("pci", "unreport"): unreport_pci,
    ("decommission",): decommission_node,
}
