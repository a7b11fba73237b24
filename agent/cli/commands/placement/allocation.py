"""``agent allocation show``, ``move``, ``delete`` and ``remove-tree``: work on what a consumer
holds.
"""

from collections.abc import Iterator, Mapping

from oslo_config import cfg

from agent.cli.command import Options
from agent.cli.placement_work import finish, placement_work
from agent.model.allocation import Holdings
from agent.model.names import ProviderUuid, printable
from agent.placement.allocations.change import Deleted, delete, delete_forced, remove_tree
from agent.placement.allocations.checks import consumer_uuid
from agent.placement.allocations.claim import move
from agent.placement.allocations.providers import provider_by, provider_name_of, read_consumer
from agent.placement.client import CONSUMER_TYPES


def remove_tree_from_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    """Remove the providers of one node from a consumer's allocation; no error if it has none of
    them. Return the exit code.

    :raises AllocationError: there is no such node or consumer, or the allocation cannot be changed.
    """
    consumer = consumer_uuid(options.arguments["consumer"])
    with placement_work(conf, options, "allocation-remove-tree", writes=True) as work:
        root = provider_by(work.client, options.arguments["root"])
        removed = remove_tree(work.client, consumer, root.uuid)
        does = "would let" if options.dry_run else "let"
        line = (
            f"consumer {consumer} {does} go of {removed} providers of {printable(root.name)}"
            if removed
            else f"consumer {consumer} has nothing there"
        )
        result = {
            "consumer": consumer,
            "root": {"uuid": root.uuid, "name": root.name},
            "providers_removed": removed,
        }
        return finish(work, options, "allocation-remove-tree", result, [line])


def delete_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    """Delete a consumer's allocation; no error if it has none. Return the exit code.

    :raises AllocationError: it cannot be deleted.
    """
    consumer = consumer_uuid(options.arguments["consumer"])
    with placement_work(conf, options, "allocation-delete", writes=True) as work:
        became = (delete_forced if options.arguments["force"] else delete)(work.client, consumer)
        did = "would be" if options.dry_run else "was"
        line = (
            f"consumer {consumer} {did} deleted"
            if became is Deleted.DELETED
            else f"consumer {consumer} holds nothing"
        )
        return finish(
            work,
            options,
            "allocation-delete",
            {"consumer": consumer, "deleted": became is Deleted.DELETED},
            [line],
        )


def holdings_lines(holdings: Holdings, names: Mapping[ProviderUuid, str]) -> Iterator[str]:
    """Yield a line for each provider, with its name if that is known, and the amounts held."""
    for uuid, resources in holdings.items():
        amounts = ", ".join(f"{name} {amount}" for name, amount in sorted(resources.items()))
        yield f"  {names[uuid]} ({uuid}): {amounts}" if uuid in names else f"  {uuid}: {amounts}"


def show_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show a consumer's allocation; no error if it has none. Return the exit code.

    :raises BadRequest: the argument is not a uuid.
    """
    consumer = consumer_uuid(options.arguments["consumer"])
    with placement_work(conf, options, "allocation-show", writes=False) as work:
        held = read_consumer(work.client, consumer)
        if held is None:
            return finish(
                work,
                options,
                "allocation-show",
                {"consumer": consumer, "allocations": {}},
                [f"consumer {consumer} holds nothing"],
            )
        names = {uuid: provider_name_of(work.client, uuid) for uuid in held.resources}
        owner = f"generation {held.generation}, project {held.project_id}, user {held.user_id}"
        result = {
            "consumer": consumer,
            "allocations": held.resources,
            "project_id": held.project_id,
            "user_id": held.user_id,
            "consumer_generation": held.generation,
            "providers": names,
        }
        lines = [f"consumer {consumer}, {owner}", *holdings_lines(held.resources, names)]
        return finish(work, options, "allocation-show", result, lines)


def move_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    """Move the allocation of one consumer to another. Return the exit code.

    :raises AllocationError: it cannot be moved.
    """
    given = options.arguments
    source, target = (
        consumer_uuid(given["source"], "source"),
        consumer_uuid(given["target"], "target"),
    )
    with placement_work(conf, options, "allocation-move", writes=True) as work:
        moved = move(
            work.client,
            source,
            target,
            expected=None,
            overwrite=given["overwrite"],
            project_id=given["project_id"],
            user_id=given["user_id"],
            typed=work.capabilities.offers(CONSUMER_TYPES),
        )
        result = {
            "source": source,
            "target": target,
            "allocations": moved.resources,
            "already": moved.already,
        }
        lines = [
            (
                f"consumer {target} {'gets' if options.dry_run else 'has'} all that consumer "
                f"{source} held"
            ),
            *holdings_lines(moved.resources, {}),
        ]
        return finish(work, options, "allocation-move", result, lines)
