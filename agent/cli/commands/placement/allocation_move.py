"""``agent allocation move``: all that one consumer holds becomes another's."""

from oslo_config import cfg

from agent.cli.commands.placement.holdings_lines import holdings_lines
from agent.cli.options import Options
from agent.cli.placement_work import finish, placement_work
from agent.placement.allocations.checks import consumer_uuid
from agent.placement.allocations.move import move
from agent.placement.client import CONSUMER_TYPES


def move_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    """Move it.

    :raises AllocationError: it cannot be moved.
    """
    given = options.arguments
    source, target = consumer_uuid(given["source"], "source"), consumer_uuid(given["target"], "target")
    with placement_work(conf, options, "allocation-move", writes=True) as work:
        moved = move(
            work.client, source, target, expected=None, overwrite=given["overwrite"], project_id=given["project_id"], user_id=given["user_id"],
            typed=work.capabilities.offers(CONSUMER_TYPES),
        )  # fmt: skip
        result = {"source": source, "target": target, "allocations": moved.resources, "already": moved.already}
        lines = [f"consumer {target} {'gets' if options.dry_run else 'has'} all that consumer {source} held", *holdings_lines(moved.resources, {})]
        return finish(work, options, "allocation-move", result, lines)
