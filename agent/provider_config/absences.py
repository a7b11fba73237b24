"""Providers that the operator's files name and that are nowhere: told once, and again only after they have been there."""

import logging
from collections.abc import Collection, Set
from difflib import SequenceMatcher

from agent.model.names import printable
from agent.provider_config.entry import Entry, Key, ProviderConfig

LOG = logging.getLogger(__name__)

MAX_NAMES = 10


class Absences:
    """Remembers what was told."""

    def __init__(self) -> None:
        self._told: frozenset[Key] = frozenset()

    def tell(self, config: ProviderConfig, found: Set[Key], names: Collection[str]) -> None:
        """Warn of each entry that is not among ``found`` and was when this was last asked. ``names``: of all providers there are."""
        missing = absent(config, found)
        for one in missing:
            if one.key not in self._told:
                LOG.warning("%s", absence(one, names))
        self._told = frozenset(one.key for one in missing)


def absent(config: ProviderConfig, found: Set[Key]) -> list[Entry]:
    """The entries whose providers are not among ``found``."""
    return [one for one in config.entries if one.key not in found and not one.key.is_default]


def absence(entry: Entry, names: Collection[str]) -> str:
    """What to say of an absent provider, with those of ``names`` that may be meant."""
    near = ", ".join(map(printable, _nearest(entry, names)))
    return f"{entry}: there is no such provider now; it gets what is due as soon as there is one. Known here: {near or 'none'}"


def _nearest(entry: Entry, names: Collection[str]) -> list[str]:
    """The names that are most like the one wanted, or for a uuid the first ones."""
    if entry.key.by == "uuid":
        return sorted(names)[:MAX_NAMES]
    return sorted(names, key=lambda name: (-SequenceMatcher(None, entry.key.value, name).ratio(), name))[:MAX_NAMES]
