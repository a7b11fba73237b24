"""``agent allocation show``: all that a consumer holds."""

from oslo_config import cfg

from agent.cli.commands.placement.holdings_lines import holdings_lines
from agent.cli.options import Options
from agent.cli.placement_work import finish, placement_work
from agent.placement.allocations.checks import consumer_uuid
from agent.placement.allocations.providers import provider_name_of
from agent.placement.allocations.reading import read_consumer


def show_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    """Show it; that it holds nothing is no error.

    :raises BadRequest: it is no uuid.
    """
    consumer = consumer_uuid(options.arguments["consumer"])
    with placement_work(conf, options, "allocation-show", writes=False) as work:
        held = read_consumer(work.client, consumer)
        if held is None:
            return finish(work, options, "allocation-show", {"consumer": consumer, "allocations": {}}, [f"consumer {consumer} holds nothing"])
        names = {uuid: provider_name_of(work.client, uuid) for uuid in held.resources}
        owner = f"generation {held.generation}, project {held.project_id}, user {held.user_id}"
        result = {
            "consumer": consumer, "allocations": held.resources, "project_id": held.project_id, "user_id": held.user_id,
            "consumer_generation": held.generation, "providers": names,
        }  # fmt: skip
        lines = [f"consumer {consumer}, {owner}", *holdings_lines(held.resources, names)]
        return finish(work, options, "allocation-show", result, lines)
