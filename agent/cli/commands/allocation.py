"""``agent allocation`` with ``show``, ``list``, ``claim``, ``put``, ``add``, ``remove``, ``move``,
``delete`` and ``remove-tree``: work on what a consumer holds.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.cli.command import Commands, Options
from agent.cli.placement_work import finish, placement_work
from agent.model.inventory import Allocation, Holdings
from agent.model.names import ConsumerUuid, ProviderUuid, number_of, printable
from agent.placement.allocations.candidates import candidates, parse_query
from agent.placement.allocations.change import (
    Doubling,
    add_resources,
    delete,
    delete_forced,
    remove_resources,
    remove_tree,
)
from agent.placement.allocations.checks import (
    REMEDY,
    BadRequest,
    ConsumerNotFound,
    NotEnoughRoom,
    consumer_uuid,
    quoted,
    refuse,
)
from agent.placement.allocations.claim import Owner, claim, move, put
from agent.placement.allocations.records import (
    of_tree,
    provider_by,
    read_consumer,
)
from agent.placement.client import CONSUMER_TYPES, PlacementClient

LARGEST_RECORD = 1024 * 1024
"""In bytes: a file with one consumer's record."""


def remove_tree_from_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    """Remove the providers of one node from a consumer's allocation; no error if it has none of
    them. Return the exit code.

    :raises AllocationError: there is no such node, or the allocation cannot be changed.
    """
    consumer = consumer_uuid(options.arguments["consumer"])
    with placement_work(conf, options, "allocation-remove-tree", writes=True) as work:
        root = provider_by(work.client, options.arguments["root"])
        try:
            removed = remove_tree(work.client, consumer, root.uuid)
        except ConsumerNotFound:
            removed = 0
        done = "would be removed" if options.dry_run else "removed"
        line = (
            f"{number_of(removed, 'provider')} of {printable(root.name)} {done} from the "
            f"allocation of consumer {consumer}"
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
        deleted = (delete_forced if options.arguments["force"] else delete)(work.client, consumer)
        did = "would be" if options.dry_run else "was"
        line = (
            f"consumer {consumer} {did} deleted"
            if deleted
            else f"consumer {consumer} holds nothing"
        )
        return finish(
            work,
            options,
            "allocation-delete",
            {"consumer": consumer, "deleted": deleted},
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
        names = {uuid: provider_by(work.client, uuid).name for uuid in held.resources}
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


def list_allocations(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show every consumer that holds something of a node or below it. Return the exit code.

    :raises AllocationError: there is no such node.
    """
    with placement_work(conf, options, "allocation-list", writes=False) as work:
        root = provider_by(work.client, options.arguments["root"])
        providers, found = of_tree(work.client, root.uuid)
        names = {row.uuid: printable(row.name) for row in providers}
        lines = [f"{printable(root.name)} ({root.uuid}): {number_of(len(found), 'consumer')}"]
        for consumer, held in found.items():
            lines += [f"consumer {consumer}", *holdings_lines(held.resources, names)]
        result = {
            "root": {"uuid": root.uuid, "name": root.name},
            "consumers": {
                consumer: {
                    "allocations": held.resources,
                    "project_id": held.project_id,
                    "user_id": held.user_id,
                    "consumer_generation": held.generation,
                }
                for consumer, held in found.items()
            },
        }
        return finish(work, options, "allocation-list", result, lines)


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


def claim_candidate(conf: cfg.ConfigOpts, options: Options) -> int:
    """Allocate the first candidate for a query for which there is capacity. Return the exit code.

    :raises AllocationError: there is no candidate, or it cannot be allocated.
    """
    given = options.arguments
    consumer, query = consumer_uuid(given["consumer"]), parse_query(given["query"])
    doubling = _doubling(given["beside_source"])
    with placement_work(conf, options, "allocation-claim", writes=True) as work:
        owner = _owner(work.client, consumer, given["project_id"], given["user_id"])
        found = candidates(work.client, query)
        if not found.requests:
            raise NotEnoughRoom(
                "there is no candidate for this query",
                f"ask for less, see what there is: agent candidates {shlex.join(given['query'])}",
                consumer=consumer,
            )
        claimed = claim(work.client, consumer, found.requests, owner, doubling=doubling)
        result = {
            "consumer": consumer,
            "candidate": claimed.request.body,
            "allocations": claimed.resources,
        }
        lines = [
            f"consumer {consumer} {'gets' if options.dry_run else 'holds'}",
            *holdings_lines(claimed.resources, {}),
        ]
        return finish(work, options, "allocation-claim", result, lines)


def _doubling(word: str | None) -> Doubling:
    """Return how a claim treats what the consumer holds already, as the source of a move."""
    known = {None: Doubling.REFUSE, "maximum": Doubling.MAXIMUM, "sum": Doubling.SUM}
    if word not in known:
        raise BadRequest(
            f"--beside-source {quoted(word)}: neither maximum nor sum",
            "maximum: both sides share what is on both; sum: each side has its own",
        )
    return known[word]


def _owner(
    client: PlacementClient, consumer: ConsumerUuid, project_id: str | None, user_id: str | None
) -> Owner:
    """Return the given owner; what is not given is that of the consumer's present allocation.

    :raises BadRequest: the consumer has no allocation that would say who its owner is.
    """
    if project_id is None or user_id is None:
        held = client.allocation(consumer)
        if held is None:
            raise BadRequest(
                f"consumer {consumer} holds nothing, so that its owner is unknown",
                "give --project-id and --user-id",
                consumer=consumer,
            )
        project_id, user_id = project_id or held.project_id, user_id or held.user_id
    return Owner(project_id, user_id)


def _change(
    conf: cfg.ConfigOpts,
    options: Options,
    *,
    name: str,
    change: Callable[[PlacementClient, str, Holdings], None],
    verbs: tuple[str, str],
) -> int:
    """Add amounts of one provider to a consumer's allocation, or remove them. Return the exit code.

    :raises AllocationError: there is no such consumer or provider, not enough room, or the consumer
        has less.
    """
    given = options.arguments
    consumer, amounts = consumer_uuid(given["consumer"]), _amounts(given["amounts"])
    with placement_work(conf, options, name, writes=True) as work:
        provider = provider_by(work.client, given["provider"])
        change(work.client, consumer, {provider.uuid: amounts})
        did = verbs[0] if options.dry_run else verbs[1]
        result = {
            "consumer": consumer,
            "provider": {"uuid": provider.uuid, "name": provider.name},
            "resources": amounts,
        }
        lines = [
            f"consumer {consumer} {did}",
            *holdings_lines({provider.uuid: amounts}, {provider.uuid: printable(provider.name)}),
        ]
        return finish(work, options, name, result, lines)


def _amounts(words: Sequence[str]) -> dict[str, int]:
    """Return the amounts by class that words such as ``VCPU=2`` name.

    :raises BadRequest: a word is no such amount, or names a class again.
    """
    wrong: list[str] = []
    found: dict[str, int] = {}
    for word in words:
        name, _, amount = word.partition("=")
        if not amount.isascii() or not amount.isdigit() or len(amount) > 10:
            wrong.append(f"{quoted(word)} is not CLASS=AMOUNT")
        elif name in found:
            wrong.append(f"{quoted(name)} is named twice")
        else:
            found[name] = int(amount)
    refuse(wrong)
    return found


def put_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    """Write the complete record of a consumer, as a file has it. Return the exit code.

    :raises AllocationError: the record is invalid, or somebody else changed the consumer.
    """
    consumer = consumer_uuid(options.arguments["consumer"])
    record, names = _record(consumer, Path(options.arguments["file"]))
    with placement_work(conf, options, "allocation-put", writes=True) as work:
        put(work.client, record)
        result = {
            "consumer": consumer,
            "allocations": record.resources,
            "project_id": record.project_id,
            "user_id": record.user_id,
        }
        lines = [
            f"consumer {consumer} {'would hold' if options.dry_run else 'holds'}",
            *holdings_lines(record.resources, names),
        ]
        return finish(work, options, "allocation-put", result, lines)


def _record(consumer: ConsumerUuid, file: Path) -> tuple[Allocation, Mapping[ProviderUuid, str]]:
    """Return the record in ``file``: the document of ``agent allocation show --format json`` or its
    ``result`` alone; and the names of providers that it has.

    :raises BadRequest: the file cannot be read, or is no such document.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(LARGEST_RECORD + 1)
        document = json.loads(text) if len(text) <= LARGEST_RECORD else None
    except (OSError, ValueError, RecursionError) as error:
        raise BadRequest(f"{printable(str(file))}: {printable(str(error))}", REMEDY) from error
    if isinstance(document, dict) and isinstance(document.get("result"), dict):
        document = document["result"]
    fields = ("allocations", "project_id", "user_id", "consumer_generation")
    if not isinstance(document, dict) or any(field not in document for field in fields):
        raise BadRequest(
            f"{printable(str(file))}: it is no object with {', '.join(fields)}",
            f"begin with what it holds: agent allocation show {consumer} --format json; if it "
            "holds nothing, add project_id and user_id of its server, and consumer_generation null",
        )
    if document.get("consumer", consumer) != consumer:
        raise BadRequest(
            (
                f"{printable(str(file))}: it is the record of consumer "
                f"{quoted(document['consumer'])}, not of {consumer}"
            ),
            REMEDY,
        )
    generation: Any = document["consumer_generation"]
    if generation is not None and (not isinstance(generation, int) or isinstance(generation, bool)):
        raise BadRequest(
            f"{printable(str(file))}: consumer_generation {quoted(generation)} is no whole number",
            "null, if the consumer holds nothing yet",
        )
    record = Allocation(
        consumer,
        document["allocations"],
        document["project_id"],
        document["user_id"],
        generation,
    )
    names = document.get("providers")
    return record, names if isinstance(names, dict) else {}


RUN: Commands = {
    ("allocation", "show"): show_allocation,
    ("allocation", "list"): list_allocations,
    ("allocation", "claim"): claim_candidate,
    ("allocation", "put"): put_allocation,
    ("allocation", "add"): partial(
        _change, name="allocation-add", change=add_resources, verbs=("would get", "got")
    ),
    ("allocation", "remove"): partial(
        _change, name="allocation-remove", change=remove_resources, verbs=("would lose", "lost")
    ),
    ("allocation", "move"): move_allocation,
    ("allocation", "delete"): delete_allocation,
    ("allocation", "remove-tree"): remove_tree_from_allocation,
}
