"""Giving the nodes of this host back to nova-compute: what only the agent brought into Placement
goes, and allocations move back to where nova-compute expects them.

Every step can be repeated. The journal of a node is emptied last, so that an interrupted run is
taken up again by the next one.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from agent.audit.context import AuditOptions
from agent.audit.fleet import Fleet
from agent.errors import ConfigError, ConfigErrors
from agent.model.finding import WELL
from agent.model.mirror import Journal, Name, Ownership
from agent.model.names import AGENT_MARK, ConsumerUuid, ProviderUuid, printable
from agent.model.provider_tree import ProviderTree
from agent.model.report import METHODS, NodeReport, Report
from agent.placement.allocations.change import remove_from
from agent.placement.allocations.checks import ConsumerNotFound
from agent.placement.client import PlacementClient
from agent.tracker.node_state import NodeState
from agent.tree.node_trees import is_cell_name, page_size
from agent.tree.reported_cards import MARKER, card_of

# Audits until nothing is left to do: the first one moves and deletes, the next one deletes what was
# in use until then, the last one finds nothing to do.
_PASSES = 4


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
    kept: Mapping[ConsumerUuid, Mapping[ProviderUuid, str]]
    """By consumer that no record knows: what it keeps of these providers."""
    providers: Mapping[ProviderUuid, str]
    """The providers that only the agent makes and that stay for what others have there."""
    deleted: Sequence[Name]
    """The traits and classes that the agent made up and that no provider has any more."""
    left: Sequence[Name]
    """Those that no provider of the nodes has any more and that an operator or nova-compute may
    have made.
    """


def give_back(fleet: Fleet, nodes: Mapping[ProviderUuid, str], *, dry_run: bool) -> GivenBack:
    """Give the nodes back, by uuid and name. ``fleet``: of a context that gives back.

    :raises AgentError: Placement or the store cannot be used, or Placement does not have a node;
        what is done so far stays.
    """
    context = fleet.context
    client, storage = context.server.client(), context.server.storage
    _check_present(client, context.server.transport.endpoint, nodes)
    report = _audit(fleet, sorted(nodes), dry_run=dry_run)
    released: dict[ConsumerUuid, Sequence[str]] = {}
    kept: dict[ConsumerUuid, Mapping[ProviderUuid, str]] = {}
    if not context.pci.report:
        # After the audits, because they check that no other agent and no other host has the node.
        for node in filter(_is_well, report.nodes):
            held = _holders_of_devices(client, storage.journal(ProviderUuid(node.uuid)), node)
            known = _known(fleet.states().get(node.uuid))
            gone = {consumer: cards for consumer, cards in held.items() if consumer in known}
            kept |= {consumer: cards for consumer, cards in held.items() if consumer not in known}
            released |= {consumer: sorted(cards.values()) for consumer, cards in gone.items()}
            if not dry_run:
                _release(client, gone)
        if released and not dry_run:
            report = _joined(report, _audit(fleet, sorted(nodes), dry_run=False))
    complete, deleted, left = set[ProviderUuid](), list[Name](), set[Name]()
    providers: dict[ProviderUuid, str] = {}
    for node in filter(_is_well, report.nodes):
        root = ProviderUuid(node.uuid)
        journal = storage.journal(root)
        gone_names = _names_without_provider(journal, node.tree)
        made = [name for name in gone_names if _is_made_up(name)]
        left.update(name for name in gone_names if name not in made)
        if any(drift.kind == "adoption-needed" for drift in node.drift):
            # The drift says what stays and what to do.
            continue
        providers |= _providers_of_agent(journal, node, reports=context.pci.report)
        if dry_run:
            deleted += made
        elif not journal.held:
            deleted += [name for name in made if _delete(client, name)]
            storage.save_journal(root, Journal(version=journal.version))
            complete.add(root)
    report = replace(report, requests=_sums(report.requests, client.exchange.counts))
    return GivenBack(
        report,
        frozenset(complete),
        released,
        kept,
        providers,
        sorted({*deleted}),
        sorted(left),
    )


def _check_present(
    client: PlacementClient, endpoint: str, nodes: Mapping[ProviderUuid, str]
) -> None:
    """Check that Placement has the nodes, because an audit would create them.

    :raises ConfigErrors: it lacks some; nothing is written.
    """
    ConfigErrors.raise_if_any(
        [
            ConfigError(
                f"{endpoint} has no provider {root} of node {printable(name)}: there is nothing to "
                "give back",
                "check that [placement] leads to where the agent managed the node; if the provider "
                "was deleted there, start nova-compute, and name other nodes with --node",
            )
            for root, name in nodes.items()
            if client.provider(root) is None
        ]
    )


def _is_well(node: NodeReport) -> bool:
    return node.state in WELL


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


def _holders_of_devices(
    client: PlacementClient, journal: Journal, node: NodeReport
) -> Mapping[ConsumerUuid, Mapping[ProviderUuid, str]]:
    """Return by consumer the agent's providers of a node's devices that it has something of, with
    their names: of those that go once nobody has anything of them.
    """
    held: dict[ConsumerUuid, dict[ProviderUuid, str]] = {}
    for row in client.tree(ProviderUuid(node.uuid)):
        if not journal.owns(row.uuid) or card_of(row.name, node.name) is None:
            continue
        consumers = client.consumers(row.uuid)
        if consumers and _is_all_own(client, row.uuid, journal.of(row.uuid)):
            for consumer in consumers:
                held.setdefault(consumer, {})[row.uuid] = row.name
    return held


def _is_all_own(client: PlacementClient, card: ProviderUuid, own: Ownership) -> bool:
    """Whether a provider is one of devices, and the agent wrote all that is on it."""
    traits = client.traits(card)[1]
    return (
        MARKER in traits
        and traits <= own.traits
        and client.inventories(card)[1].keys() <= own.classes
        and client.aggregates(card)[1] <= own.aggregates
    )


def _known(records: NodeState | None) -> frozenset[ConsumerUuid]:
    """Return the consumers that the records of a node mention. Others may be another service's."""
    if records is None:
        return frozenset()
    claimed = (claim.instance for claim in records.claims.values())
    return frozenset({*claimed, *records.instances, *records.migrations})


def _release(
    client: PlacementClient, held: Mapping[ConsumerUuid, Mapping[ProviderUuid, str]]
) -> None:
    """Remove these providers from the allocations of their consumers; other shares stay."""
    for consumer, cards in sorted(held.items()):
        # A consumer that released everything meanwhile has nothing left to remove.
        with suppress(ConsumerNotFound):
            remove_from(client, consumer, partial(_of_these, frozenset(cards)))


def _of_these(
    cards: Collection[ProviderUuid], _held: Collection[ProviderUuid]
) -> Collection[ProviderUuid]:
    return cards


def _providers_of_agent(
    journal: Journal, node: NodeReport, *, reports: bool
) -> Mapping[ProviderUuid, str]:
    """Return the providers in the tree of ``node`` that only the agent makes. ``reports``:
    nova-compute reports devices.
    """
    return {
        provider.uuid: provider.name
        for provider in node.tree.providers()
        if journal.owns(provider.uuid)
        and provider.uuid not in journal.held
        and (
            is_cell_name(provider.name, node.name)
            or (not reports and MARKER in provider.traits and card_of(provider.name, node.name))
        )
    }


# --- names ----------------------------------------------------------------------------------------


def _names_without_provider(journal: Journal, tree: ProviderTree) -> Sequence[Name]:
    """Return the custom traits and classes that the agent wrote and that no provider of ``tree``
    has any more.
    """
    present: set[Name] = set()
    for provider in tree.providers():
        present.update(("class", name) for name in provider.inventory)
        present.update(("trait", name) for name in provider.traits)
    return sorted(journal.all_names() - present)


def _is_made_up(name: Name) -> bool:
    """Whether nobody but an agent chooses the name: its mark under any name of
    the host, the class of a page size. The classes of devices are nova-compute's too.
    """
    text = name[1]
    if name[0] == "trait":
        return text.startswith(AGENT_MARK)
    return page_size(text) is not None


def _delete(client: PlacementClient, name: Name) -> bool:
    """Delete a trait or class unless a provider has it. Return whether it is deleted."""
    kind, text = name
    return client.delete_name("traits" if kind == "trait" else "resource_classes", text)
