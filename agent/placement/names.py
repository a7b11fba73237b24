"""The traits and resource classes that one Placement server knows, read once and remembered."""

import logging
from collections.abc import Iterable
from dataclasses import replace

from agent.model.mirror import ServerCapabilities
from agent.model.names import is_custom
from agent.model.provider_tree import DesiredTree, PresentTree
from agent.placement.client import PlacementClient

LOG = logging.getLogger(__name__)

# For how many seconds a standard trait that the server does not know is left out before the server
# is asked again.
ASK_AGAIN = 3600.0


def added_names(
    present: PresentTree, desired: DesiredTree
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the traits and the resource classes that providers of ``desired`` have and the same
    providers in ``present`` have not.
    """
    traits, classes = set[str](), set[str]()
    for provider in desired.providers():
        old = present.provider(provider.uuid) if present.exists(provider.uuid) else None
        traits |= provider.traits - old.traits if old else provider.traits
        classes |= (
            provider.inventory.keys() - old.inventory.keys() if old else provider.inventory.keys()
        )
    return frozenset(traits), frozenset(classes)


def learn_traits(
    client: PlacementClient, capabilities: ServerCapabilities, wanted: Iterable[str], now: float
) -> ServerCapabilities:
    """Return ``capabilities`` in which every trait of ``wanted`` is either known, custom and to be
    created, or left out for an hour.

    Nothing is sent if all were asked for before.
    """
    unknown = {
        name: until
        for name, until in capabilities.unknown_traits.items()
        if now < until <= now + ASK_AGAIN
    }
    asked = {name for name in wanted if name not in capabilities.traits and name not in unknown}
    if not asked:
        return capabilities
    known = client.known_traits(asked)
    for name in sorted(asked - known):
        if not is_custom(name):
            LOG.warning("this Placement does not know the trait %s; it is left out", name)
            unknown[name] = now + ASK_AGAIN
    return replace(capabilities, traits=capabilities.traits | known, unknown_traits=unknown)


def with_names(
    capabilities: ServerCapabilities, *, traits: Iterable[str] = (), classes: Iterable[str] = ()
) -> ServerCapabilities:
    """Return ``capabilities`` with these names confirmed."""
    return replace(
        capabilities,
        traits=capabilities.traits | set(traits),
        classes=capabilities.classes | set(classes),
    )


def forget_names(capabilities: ServerCapabilities) -> ServerCapabilities:
    """Return ``capabilities`` without confirmed names, because the server refused one that it had
    confirmed.
    """
    return replace(capabilities, traits=frozenset(), classes=frozenset())
