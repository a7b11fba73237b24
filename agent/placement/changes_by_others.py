"""What others changed of the agent's in Placement: deleted providers, an older state of the whole
tree, and lost traits; recognized and logged.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

from agent.model.mirror import Journal, Ownership, PlacementView
from agent.model.names import MOST_NAMED, ProviderUuid, name_first, printable
from agent.model.provider import Provider
from agent.model.provider_tree import PresentTree
from agent.placement.answers import Row

LOG = logging.getLogger(__name__)


def deleted_by_others(
    view: PlacementView,
    rows: Sequence[Row],
    root: ProviderUuid,
    own: Mapping[ProviderUuid, Ownership],
) -> list[str]:
    """Return the names of the agent's providers that somebody else deleted.

    Providers of others may come and go.
    """
    if not view.tree.exists(root):
        return []
    shown = {row.uuid for row in rows}
    return [
        provider.name
        for provider in view.tree.providers()
        if provider.uuid in view.read_at and provider.uuid in own and provider.uuid not in shown
    ]


def set_back(view: PlacementView, rows: Sequence[Row], root: ProviderUuid) -> list[str]:
    """Return the names of the providers whose generation is lower than in ``view``: Placement was
    set back to an older state.
    """
    if not view.tree.exists(root):
        return []
    shown = {row.uuid: row.generation for row in rows}
    return [
        provider.name
        for provider in view.tree.providers()
        if provider.uuid in view.read_at
        and shown.get(provider.uuid, provider.generation or 0) < (provider.generation or 0)
    ]


def lacks_own(read: Provider, own: Ownership | None, known: Provider) -> bool:
    """Return whether ``read`` lacks something that the agent wrote and that ``known`` has."""
    if own is None:
        return False
    classes = any(
        name in known.inventory and read.inventory.get(name) != known.inventory[name]
        for name in own.classes
    )
    return (
        classes
        or bool(own.traits & known.traits - read.traits)
        or bool(own.aggregates & known.aggregates - read.aggregates)
    )


def log_changes(missing: Sequence[str], went_back: Sequence[str]) -> None:
    """Log the names of providers that somebody else deleted or that are in an older state."""
    if went_back:
        LOG.warning(
            "placement state went back or was changed outside (%s); everything is read again",
            _first_names([*missing, *went_back]),
        )
    elif missing:
        LOG.warning(
            (
                "somebody deleted providers of the agent's (%s); those that the node has are made "
                "again"
            ),
            _first_names(missing),
        )


def log_losses(
    before: PresentTree,
    after: PresentTree,
    root: ProviderUuid,
    journal: Journal,
    suspects: Collection[ProviderUuid],
) -> None:
    """Log what others removed: traits of the agent on its providers, and with a deleted root what
    somebody else had put on it.

    :param suspects: providers with a write of unknown outcome: their traits may never have been
        set.
    """
    losses = {
        uuid: own.traits & before.provider(uuid).traits - after.provider(uuid).traits
        for uuid, own in journal.providers.items()
        if uuid not in suspects and before.exists(uuid) and after.exists(uuid)
    }
    lines = [
        f"{printable(after.name_of(uuid))} lost traits that the agent had set: "
        + name_first(sorted(lost))
        for uuid, lost in losses.items()
        if lost
    ]
    for line in sorted(lines)[:MOST_NAMED]:
        LOG.warning("provider %s", line)
    if len(lines) > MOST_NAMED:
        LOG.warning("%d more providers lost traits that the agent had set", len(lines) - MOST_NAMED)
    if before.exists(root) and not after.exists(root):
        _log_lost_root(before.provider(root), journal.of(root))


def _log_lost_root(root: Provider, own: Ownership) -> None:
    """Log what others had put on a deleted root: only they can put it on the new one."""
    foreign = [
        ("traits", root.traits - own.traits),
        ("aggregates", root.aggregates - own.aggregates),
    ]
    lost = "; ".join(
        f"{kind} {printable(name_first(sorted(names)))}" for kind, names in foreign if names
    )
    if lost:
        what = (
            "the root %s was deleted, and with it what somebody else had put on it: %s; it "
            "has to be put on the new one"
        )
        LOG.warning(what, printable(root.name), lost)


def _first_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are: a host has thousands of providers."""
    return name_first(sorted(map(printable, names)))
