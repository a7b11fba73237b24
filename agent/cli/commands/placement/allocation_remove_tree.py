"""``agent allocation remove-tree``: a consumer lets go of one node, and keeps what it has elsewhere."""

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.placement_work import finish, placement_work
from agent.model.names import printable
from agent.placement.allocations.change import remove_tree
from agent.placement.allocations.checks import consumer_uuid
from agent.placement.allocations.providers import provider_by


def remove_tree_from_allocation(conf: cfg.ConfigOpts, options: Options) -> int:
    """Have it let go; that it has nothing there is as good.

    :raises AllocationError: there is no such node or consumer, or it cannot let go.
    """
    consumer = consumer_uuid(options.arguments["consumer"])
    with placement_work(conf, options, "allocation-remove-tree", writes=True) as work:
        root = provider_by(work.client, options.arguments["root"])
        removed = remove_tree(work.client, consumer, root.uuid)
        does = "would let" if options.dry_run else "let"
        line = f"consumer {consumer} {does} go of {removed} providers of {printable(root.name)}" if removed else f"consumer {consumer} has nothing there"
        result = {"consumer": consumer, "root": {"uuid": root.uuid, "name": root.name}, "providers_removed": removed}
        return finish(work, options, "allocation-remove-tree", result, [line])
