"""What the operator's files would change in the trees as the store knows them from the last audits: no driver and no Placement is asked."""

from collections.abc import Iterator
from dataclasses import replace

from agent.tree.provider_files import put_operators_files
from agent.model.mirror import ServerCapabilities, PlacementView
from agent.model.names import ProviderUuid
from agent.model.report import NodeReport, NodeState, Outcome
from agent.placement.merge_inputs import MergeInputs
from agent.placement.merge import Merge, Use
from agent.placement.plan import make_plan
from agent.provider_config.entry import Key, ProviderConfig
from agent.render.problems import problems_of
from agent.store.store import Store


def changes(store: Store, config: ProviderConfig, owner_trait: str) -> Iterator[tuple[NodeReport, frozenset[Key]]]:
    """Each node that the agent has audited, with what would be sent and what is wrong, and which entries have a provider there."""
    for endpoint, root in store.views():
        view = store.view(endpoint, root)
        if view is not None and view.tree.exists(root) and store.journal(root).owns(root):
            yield _node(store, view, root, store.capabilities(endpoint) or ServerCapabilities(endpoint, "1.30"), config, owner_trait)


def _node(
    store: Store, view: PlacementView, root: ProviderUuid, capabilities: ServerCapabilities, config: ProviderConfig, owner_trait: str
) -> tuple[NodeReport, frozenset[Key]]:
    # As if the node had been found just as it was.
    base, journal = view.tree.scoped(root), store.journal(root)
    by = MergeInputs.of(view, journal, base, base.copy(), root)
    applied = put_operators_files(config, by, owner_trait)
    # Nobody was asked whether what is held is free by now.
    held = {uuid: dict.fromkeys(classes, Use(1)) for uuid, classes in journal.held.items()}
    target = Merge(replace(by, desired=applied.tree), capabilities, held, applied.configured).target()
    outcomes = tuple(Outcome(one) for one in make_plan(view, target, capabilities, root).operations)
    problems = tuple(problem for one in applied.problems for problem in problems_of(one))
    state: NodeState = "degraded" if problems else "pending" if outcomes else "in-sync"
    return NodeReport(view.tree.name_of(root), root, "", state, outcomes=outcomes, tree=target.tree, errors=problems), applied.found
