"""``agent allocation delete``: everything is taken from a consumer."""

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.placement_work import finish, placement_work
from agent.placement.allocations.checks import consumer_uuid
from agent.placement.allocations.delete import Deleted, delete, delete_forced


def delete_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    """Delete it; that it holds nothing is as good.

    :raises AllocationError: it cannot be deleted.
    """
    consumer = consumer_uuid(options.arguments["consumer"])
    with placement_work(conf, options, "allocation-delete", writes=True) as work:
        became = (delete_forced if options.arguments["force"] else delete)(work.client, consumer)
        did = "would be" if options.dry_run else "was"
        line = f"consumer {consumer} {did} deleted" if became is Deleted.DELETED else f"consumer {consumer} holds nothing"
        return finish(work, options, "allocation-delete", {"consumer": consumer, "deleted": became is Deleted.DELETED}, [line])
