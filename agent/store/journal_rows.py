"""The rows of the ownership journal."""

import json
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from agent.errors import RecordConflict
from agent.model.mirror import KINDS, Configured, Journal, Ownership, Tombstone
from agent.model.names import ProviderUuid
from agent.store.record_schema import COMPUTE_NODE
from agent.store.schema import JOURNAL, JOURNAL_PROVIDER
from agent.store.texts import names_of, names_text, one_of

# Built once, because building a statement costs more than executing it.
HEADER = select(JOURNAL.c.adopted, JOURNAL.c.version, JOURNAL.c.tombstones).where(
    JOURNAL.c.root == bindparam("the_root")
)
PROVIDERS = (
    select(
        JOURNAL_PROVIDER.c.provider,
        JOURNAL_PROVIDER.c.classes,
        JOURNAL_PROVIDER.c.traits,
        JOURNAL_PROVIDER.c.aggregates,
        JOURNAL_PROVIDER.c.held,
        JOURNAL_PROVIDER.c.configured_classes,
        JOURNAL_PROVIDER.c.configured_traits,
        JOURNAL_PROVIDER.c.role,
    )
    .where(JOURNAL_PROVIDER.c.root == bindparam("the_root"))
    .order_by(JOURNAL_PROVIDER.c.provider)
)


def load(connection: Connection, root: ProviderUuid) -> Journal:
    """Return the journal of a node, empty if there is none.

    :raises ValueError: the rows are invalid.
    """
    here = {"the_root": root}
    header = connection.execute(HEADER, here).one_or_none()
    rows = connection.execute(PROVIDERS, here)
    providers, held = dict[ProviderUuid, Ownership](), dict[ProviderUuid, frozenset[str]]()
    for row in rows:
        if row.classes is not None:
            providers[row.provider] = Ownership(
                names_of(row.classes),
                names_of(row.traits),
                names_of(row.aggregates),
                Configured(
                    _names_or_none(row.configured_classes), _names_or_none(row.configured_traits)
                ),
                row.role or "",
            )
        if row.held is not None:
            held[row.provider] = names_of(row.held)
    if header is None:
        return Journal(providers, held=held)
    return Journal(
        providers,
        header.adopted,
        held,
        header.version,
        _tombstones(header.tombstones) if header.tombstones is not None else {},
    )


def _names_or_none(text: str | None) -> frozenset[str]:
    return names_of(text) if text is not None else frozenset()


def roots(connection: Connection, host: str) -> frozenset[ProviderUuid]:
    """Return the nodes whose journal has providers, without those that are recorded as another
    host's.
    """
    others = select(COMPUTE_NODE.c.uuid).where(COMPUTE_NODE.c.host != host)
    return frozenset(
        connection.execute(
            select(JOURNAL_PROVIDER.c.root).where(JOURNAL_PROVIDER.c.root.not_in(others)).distinct()
        ).scalars()
    )


def save(connection: Connection, root: ProviderUuid, old: Journal, new: Journal) -> None:
    """Write what differs from ``old``; the journal has the next version afterwards.

    :raises RecordConflict: the database holds another version than ``old``.
    """
    if old.version == 0:
        connection.execute(
            insert(JOURNAL).values(
                root=root, adopted=new.adopted, version=1, tombstones=_tombstones_text(new)
            )
        )
    else:
        # First, because from here on every other writer of this journal waits.
        same = update(JOURNAL).where(JOURNAL.c.root == root, JOURNAL.c.version == old.version)
        if (
            connection.execute(
                same.values(
                    adopted=new.adopted, version=old.version + 1, tombstones=_tombstones_text(new)
                )
            ).rowcount
            != 1
        ):
            raise journal_conflict(root)
    before, after = _members(old), _members(new)
    changed = [
        uuid
        for uuid in before | after
        if old.providers.get(uuid) != new.providers.get(uuid)
        or old.held.get(uuid) != new.held.get(uuid)
    ]
    gone = [{"gone": uuid} for uuid in changed if uuid in before]
    rows = [_row(root, new, uuid) for uuid in changed if uuid in after]
    if gone:
        statement = delete(JOURNAL_PROVIDER).where(
            JOURNAL_PROVIDER.c.root == root, JOURNAL_PROVIDER.c.provider == bindparam("gone")
        )
        connection.execute(statement, gone)
    if rows:
        connection.execute(insert(JOURNAL_PROVIDER), rows)


def journal_conflict(root: ProviderUuid) -> RecordConflict:
    """Return the error for a journal that another agent wrote since it was read."""
    return RecordConflict(
        f"the journal of node {root} was changed by somebody else meanwhile",
        table=JOURNAL.name,
        key=root,
    )


def _tombstones(text: str) -> dict[Tombstone, float]:
    return {
        Tombstone(ProviderUuid(provider), one_of(kind, KINDS), name): at
        for provider, kind, name, at in json.loads(text)
    }


def _tombstones_text(journal: Journal) -> str | None:
    return (
        json.dumps([(*tombstone, at) for tombstone, at in sorted(journal.tombstones.items())])
        if journal.tombstones
        else None
    )


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
        "configured_classes": names_text(own.configured.classes)
        if own and own.configured
        else None,
        "configured_traits": names_text(own.configured.traits) if own and own.configured else None,
        "role": own.role or None if own else None,
    }
