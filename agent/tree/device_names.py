"""How the provider of a card is recognized: by its name, its marker trait and its one resource
class.
"""

from collections.abc import Iterator

import os_traits

from agent.model.devices import PciAddress
from agent.model.names import ProviderUuid
from agent.model.provider import Provider
from agent.model.provider_tree import ProviderTree

MARKER = os_traits.COMPUTE_MANAGED_PCI_DEVICE


def device_provider_name(root: str, card: PciAddress | str) -> str:
    """Return the name of the provider that counts the devices of ``card`` on the node called
    ``root``. The address is in upper case, as in trees of earlier releases.
    """
    return f"{root}_{str(card).upper()}"


def card_of(name: str, root: str) -> PciAddress | None:
    """Return the card whose provider is called ``name``; None if it is no provider of a card."""
    text = name.removeprefix(f"{root}_")
    try:
        card = PciAddress.parse(text)
    except ValueError:
        return None
    return card if name == device_provider_name(root, card) else None


def is_device_provider(provider: Provider, root: str) -> bool:
    """Whether the provider counts devices of a card of the node called ``root``."""
    return MARKER in provider.traits and card_of(provider.name, root) is not None


def device_providers(tree: ProviderTree, root: ProviderUuid) -> Iterator[Provider]:
    """Yield the providers of cards in the node's tree."""
    if tree.exists(root):
        name = tree.name_of(root)
        yield from (
            provider
            for provider in map(tree.provider, tree.get_provider_uuids(root))
            if is_device_provider(provider, name)
        )


def device_class(provider: Provider) -> str | None:
    """Return the class that counts the devices; None if operators' files added classes, so that it
    is ambiguous.
    """
    return next(iter(provider.inventory)) if len(provider.inventory) == 1 else None
