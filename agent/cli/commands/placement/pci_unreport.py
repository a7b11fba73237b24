"""``agent pci unreport``: the devices of a node are taken out of Placement, as far as nobody has any."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from oslo_config import cfg

from agent.cli.options import Options
from agent.cli.placement_work import PlacementWork, finish, placement_work
from agent.tree.device_names import MARKER, card_of
from agent.errors import ConfigError
from agent.model.names import number_of, printable
from agent.placement.allocations.providers import provider_by
from agent.placement.allocations.retiring import Retired, retire
from agent.placement.answers import Row
from agent.store.lock import RunLock

UNREPORT = "pci-unreport"


def unreport_pci(conf: cfg.ConfigOpts, options: Options) -> int:
    """Delete the providers of the node's cards. Those that guests use stay, and the agent does not start before they are gone.

    :raises AllocationError: there is no such node.
    :raises ConfigError: the devices are reported, so that they would come again.
    :raises StoreLocked: an agent runs.
    """
    if conf.pci.report_in_placement:
        raise ConfigError("[pci] report_in_placement is true: the devices would be reported again", "set it to false first")
    with placement_work(conf, options, UNREPORT, writes=True) as work, ExitStack() as stack:
        root = provider_by(work.client, options.arguments["root"])
        if not (options.dry_run or work.embedded_in):
            stack.enter_context(RunLock(Path(conf.store.path)))
        done = retire(work.client, root.uuid, MARKER, lambda name: card_of(name, root.name) is not None)
        return _finish_unreport(work, options, root, done)


def _finish_unreport(work: PlacementWork, options: Options, root: Row, done: Retired) -> int:
    return finish(work, options, UNREPORT, _unreport_document(root, done), list(_unreport_lines(root, done, dry_run=options.dry_run)), list(done.kept.values()))


def _unreport_document(root: Row, done: Retired) -> Mapping[str, Any]:
    names = {row.uuid: row.name for row in done.found}
    return {
        "root": {"uuid": root.uuid, "name": root.name},
        "deleted": {uuid: names[uuid] for uuid in done.deleted},
        "kept": {uuid: error.message for uuid, error in done.kept.items()},
    }


def _unreport_lines(root: Row, done: Retired, *, dry_run: bool) -> Iterator[str]:
    left = f", {len(done.kept)} kept" if done.kept else ""
    what = "to be deleted" if dry_run else "deleted"
    yield f"node {printable(root.name)} ({root.uuid}): {number_of(len(done.deleted), 'provider')} of devices {what}{left}"
    yield from (f"  {printable(row.name)}" for row in done.found if row.uuid in done.deleted)
