"""The rows of the ownership journal."""

from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from agent.model.journal import Configured, Journal, Ownership
from agent.model.names import ProviderUuid
from agent.store.record_schema import COMPUTE_NODE
from agent.store.schema import JOURNAL, JOURNAL_PROVIDER
from agent.store.texts import names_of, names_text

# Made once, because making a statement costs more than running it.
ADOPTED = select(JOURNAL.c.adopted).where(JOURNAL.c.root == bindparam("the_root"))
COLUMNS = [column for column in JOURNAL_PROVIDER.c if column.name != "root"]
PROVIDERS = select(*COLUMNS).where(JOURNAL_PROVIDER.c.root == bindparam("the_root")).order_by(JOURNAL_PROVIDER.c.provider)


def load(connection: Connection, root: ProviderUuid) -> Journal:
    """The journal of a node, empty if there is none.

    :raises ValueError: the rows make no sense.
    """
    here = {"the_root": root}
    adopted, rows = connection.execute(ADOPTED, here).scalar_one_or_none(), connection.execute(PROVIDERS, here)
    providers, held = dict[ProviderUuid, Ownership](), dict[ProviderUuid, frozenset[str]]()
    for provider, classes, traits, aggregates, kept, *configured in rows:
        if classes is not None:
            parts = [names_of(text) if text is not None else frozenset[str]() for text in configured]
            providers[provider] = Ownership(names_of(classes), names_of(traits), names_of(aggregates), Configured(*parts))
        if kept is not None:
            held[provider] = names_of(kept)
    return Journal(providers, bool(adopted), held)


def roots(connection: Connection, host: str) -> frozenset[ProviderUuid]:
    """The nodes that have something in their journal, but for those that are recorded as another host's."""
    others = select(COMPUTE_NODE.c.uuid).where(COMPUTE_NODE.c.host != host)
    return frozenset(connection.execute(select(JOURNAL_PROVIDER.c.root).where(JOURNAL_PROVIDER.c.root.not_in(others)).distinct()).scalars())


def save(connection: Connection, root: ProviderUuid, old: Journal, new: Journal) -> None:
    """Write what differs from ``old``, which is what the database holds."""
    known = connection.execute(select(JOURNAL.c.root).where(JOURNAL.c.root == root)).scalar_one_or_none()
    if known is None:
        connection.execute(insert(JOURNAL).values(root=root, adopted=new.adopted))
    elif old.adopted != new.adopted:
        connection.execute(update(JOURNAL).where(JOURNAL.c.root == root).values(adopted=new.adopted))
    before, after = _members(old), _members(new)
    changed = [uuid for uuid in before | after if old.providers.get(uuid) != new.providers.get(uuid) or old.held.get(uuid) != new.held.get(uuid)]
    gone = [{"gone": uuid} for uuid in changed if uuid in before]
    rows = [_row(root, new, uuid) for uuid in changed if uuid in after]
    if gone:
        one = delete(JOURNAL_PROVIDER).where(JOURNAL_PROVIDER.c.root == root, JOURNAL_PROVIDER.c.provider == bindparam("gone"))
        connection.execute(one, gone)
    if rows:
        connection.execute(insert(JOURNAL_PROVIDER), rows)


def _members(journal: Journal) -> set[ProviderUuid]:
    return {*journal.providers, *journal.held}


def _row(root: ProviderUuid, journal: Journal, uuid: ProviderUuid) -> dict[str, Any]:
    own = journal.providers.get(uuid)
    return {
        "root": root,
        "provider": uuid,
        "classes": names_text(own.classes) if own else None,
        "traits": names_text(own.traits) if own else None,
        "aggregates": names_text(own.aggregates) if own else None,
        "held": names_text(journal.held[uuid]) if uuid in journal.held else None,
        "configured_classes": names_text(own.configured.classes) if own and own.configured else None,
        "configured_traits": names_text(own.configured.traits) if own and own.configured else None,
    }
