"""Giving the nodes of this host back to nova-compute: what only the agent brought into Placement
goes, and allocations move back to where nova-compute expects them.

Every step can be repeated. The journal of a node is emptied last, so that an interrupted run is
taken up again by the next one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent.audit.context import AuditOptions
from agent.audit.fleet import Fleet
from agent.model.mirror import Journal
from agent.model.names import ConsumerUuid, ProviderUuid, is_custom
from agent.model.provider_tree import ProviderTree
from agent.model.report import METHODS, Report
from agent.placement.allocations.change import remove_from
from agent.placement.client import PlacementClient
from agent.tree.cell_tree import page_size
from agent.tree.desired_tree import agent_trait
from agent.tree.reported_cards import MARKER, card_of

# Audits until nothing is left to do: the first one moves and deletes, the next one deletes what was
# in use until then, the last one finds nothing to do.
_PASSES = 4
_DEVICE_CLASS = re.compile(r"CUSTOM_PCI_[0-9A-F]{4}_[0-9A-F]{4}")

Name = tuple[Literal["class", "trait"], str]


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The result of giving nodes back."""

    report: Report
    """Of all audits together."""
    complete: frozenset[ProviderUuid]
    """The nodes of which nothing is the agent's any more; in a dry run none."""
    released: Mapping[ConsumerUuid, Sequence[str]]
    """By consumer: the names of the providers of devices that are removed from its allocation,
    because nova-compute does not report devices.
    """
    deleted: Sequence[Name]
    """The traits and classes that the agent made up and that no provider has any more."""
    left: Sequence[Name]
    """Those that no provider of the nodes has any more and that an operator may have made."""


def give_back(fleet: Fleet, nodes: Mapping[ProviderUuid, str], *, dry_run: bool) -> GivenBack:
    """Give the nodes back, by uuid and name. ``fleet``: of a context that gives back.

    :raises AgentError: Placement or the store cannot be used; what is done so far stays.
    """
    context = fleet.context
    client, storage = context.server.client(), context.server.storage
    released: dict[ConsumerUuid, Sequence[str]] = {}
    if not context.pci.report:
        for root, name in nodes.items():
            released |= _release_devices(client, storage.journal(root), root, name, dry_run=dry_run)
    report = _audit(fleet, sorted(nodes), dry_run=dry_run)
    complete, deleted, left = set[ProviderUuid](), list[Name](), set[Name]()
    for node in report.nodes:
        root = ProviderUuid(node.uuid)
        journal = storage.journal(root)
        gone = _names_without_provider(journal, node.tree)
        made = [name for name in gone if _is_made_up(name, context.agent)]
        left.update(name for name in gone if name not in made)
        if dry_run:
            deleted += made
        elif node.state in ("in-sync", "changed") and not journal.held:
            deleted += [name for name in made if _delete(client, name)]
            storage.save_journal(root, Journal(version=journal.version))
            complete.add(root)
    report = replace(report, requests=_sums(report.requests, client.exchange.counts))
    return GivenBack(report, frozenset(complete), released, sorted({*deleted}), sorted(left))


# --- audits ---------------------------------------------------------------------------------------


def _audit(fleet: Fleet, nodes: Sequence[ProviderUuid], *, dry_run: bool) -> Report:
    """Audit the nodes until nothing is left to do, and return one report of all that was done."""
    options = AuditOptions(dry_run=dry_run, start=True, reread=True, asked=True)
    report = fleet.run(options, nodes)
    for _ in range(_PASSES - 1):
        if dry_run or not any(node.state == "changed" for node in report.nodes):
            break
        before, report = report, fleet.run(replace(options, reread=False), nodes)
        done = any(node.outcomes for node in report.nodes)
        report = _joined(before, report)
        if not done:
            break
    return report


def _joined(before: Report, after: Report) -> Report:
    """Return one report of two runs over the same nodes: each node as the second run left it, with
    the operations of both.
    """
    earlier = {node.uuid: node for node in before.nodes}
    nodes = [
        replace(
            node,
            state="changed" if node.state == "in-sync" and known.outcomes else node.state,
            outcomes=(*known.outcomes, *node.outcomes),
            requests=_sums(known.requests, node.requests),
        )
        if (known := earlier.get(node.uuid)) is not None
        else node
        for node in after.nodes
    ]
    requests = _sums(before.requests, after.requests)
    return replace(
        after, nodes=tuple(nodes), requests=requests, seconds=before.seconds + after.seconds
    )


def _sums(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {method: first.get(method, 0) + second.get(method, 0) for method in METHODS}


# --- devices --------------------------------------------------------------------------------------


def _release_devices(
    client: PlacementClient, journal: Journal, root: ProviderUuid, name: str, *, dry_run: bool
) -> Mapping[ConsumerUuid, Sequence[str]]:
    """Remove the agent's providers of a node's devices from the allocations of their consumers.
    Return their names by consumer.
    """
    cards = {
        row.uuid: row.name
        for row in client.tree(root)
        if journal.owns(row.uuid)
        and card_of(row.name, name) is not None
        and MARKER in client.traits(row.uuid)[1]
    }
    held: dict[ConsumerUuid, list[str]] = {}
    for uuid, card in cards.items():
        for consumer in client.consumers(uuid):
            held.setdefault(consumer, []).append(card)
    if not dry_run:
        for consumer in sorted(held):
            remove_from(client, consumer, lambda _held: frozenset(cards))
    return held


# --- names ----------------------------------------------------------------------------------------


def _names_without_provider(journal: Journal, tree: ProviderTree) -> Sequence[Name]:
    """Return the custom traits and classes that the agent wrote and that no provider of ``tree``
    has any more.
    """
    present: set[Name] = set()
    for provider in tree.providers():
        present.update(("class", name) for name in provider.inventory)
        present.update(("trait", name) for name in provider.traits)
    return sorted({name for name in _written_names(journal) if is_custom(name[1])} - present)


def _written_names(journal: Journal) -> Iterator[Name]:
    for own in journal.providers.values():
        for name in own.classes:
            yield "class", name
        for name in own.traits:
            yield "trait", name
    for mark in journal.tombstones:
        if mark.kind in ("class", "trait"):
            yield mark.kind, mark.name


def _is_made_up(name: Name, agent: str) -> bool:
    """Whether the agent itself chose the name: its mark, the class of a page size or of a device
    for which the operator chose none.
    """
    text = name[1]
    if name[0] == "trait":
        return text == agent_trait(agent)
    return page_size(text) is not None or _DEVICE_CLASS.fullmatch(text) is not None


def _delete(client: PlacementClient, name: Name) -> bool:
    """Delete a trait or class unless a provider has it. Return whether it is deleted."""
    kind, text = name
    return client.delete_trait(text) if kind == "trait" else client.delete_resource_class(text)
