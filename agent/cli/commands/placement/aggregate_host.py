"""``agent aggregate add-host`` and ``remove-host``: put a host into an aggregate, or remove it."""

from collections.abc import Callable

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.placement_work import finish, placement_work
from agent.model.names import ProviderUuid, printable
from agent.placement.allocations.aggregate_host import add_host, remove_host
from agent.placement.allocations.checks import provider_uuid
from agent.placement.allocations.errors import ProviderNotFound
from agent.placement.allocations.providers import provider_by
from agent.placement.client import PlacementClient


def add_host_to_aggregate(conf: cfg.ConfigOpts, options: Options) -> int:
    """Put the host into the aggregate; no error if it is in already. Return the exit code.

    :raises AllocationError: there is no such host, or it cannot be written.
    """
    return _run(conf, options, "aggregate-add-host", add_host, ("in", "put into"))


def remove_host_from_aggregate(conf: cfg.ConfigOpts, options: Options) -> int:
    """Take the host out of the aggregate; no error if it is not in, as long as other hosts are.
    Return the exit code.

    :raises AllocationError: there is no such host, no host is in that aggregate, or it cannot be
        written.
    """
    return _run(conf, options, "aggregate-remove-host", _remove, ("not in", "taken out of"))


def _remove(client: PlacementClient, aggregate: str, *, provider: ProviderUuid) -> bool:
    if remove_host(client, aggregate, provider=provider):
        return True
    if not client.members(aggregate):
        raise ProviderNotFound(
            f"no host is in aggregate {aggregate}",
            "check its uuid: openstack aggregate show displays it",
        )
    return False


def _run(
    conf: cfg.ConfigOpts,
    options: Options,
    name: str,
    operation: Callable[..., bool],
    words: tuple[str, str],
) -> int:
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
