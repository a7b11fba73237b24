"""The JSON report, exactly by its schema, because other tools rely on every name in it; and the
node's own part of a tree with sharing providers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.model.finding import Drift
from agent.model.inventory import completed, without_empty
from agent.model.names import ProviderUuid
from agent.model.provider_tree import Provider, ProviderTree
from agent.model.report import METHODS, STEPS, LastFound, NodeReport, Outcome, Report
from agent.render.document import error_rows, replace_uuids

if TYPE_CHECKING:
    from agent.model.mirror import Consumers


@dataclass(frozen=True, slots=True)
class StoredTree:
    """A node's tree from the store, as it was last seen at ``endpoint``. Usages are not stored."""

    name: str
    uuid: str
    endpoint: str
    tree: ProviderTree
    owned: frozenset[str]
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    provisional: bool = False
    consumers: "Consumers" = field(default_factory=dict)
    """Provider to consumer to what it holds, as far as known."""
    in_placement: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


HasTree = NodeReport | StoredTree
"""What has a tree to show."""


def own_providers(tree: ProviderTree, root: str) -> list[ProviderUuid]:
    """Return the node's own providers, parents first, without the roots that only share with the
    tree.
    """
    return tree.get_provider_uuids(root) if tree.exists(root) else []


def provisional_names(node: NodeReport) -> Mapping[str, str]:
    """Return the uuids that are not shown, because the next run generates others, with the names
    that replace them in texts.
    """
    if not node.provisional:
        return {}
    created = {
        outcome.operation.provider
        for outcome in node.outcomes
        if outcome.operation.op == "create-provider"
    }
    names: dict[str, str] = {provider.uuid: provider.name for provider in created if provider}
    names |= {uuid: node.tree.name_of(uuid) for uuid in own_providers(node.tree, node.uuid)}
    return {**names, node.uuid: node.name}


SCHEMA = "compute-node-agent/report/1"
TREE_SCHEMA = "compute-node-agent/tree/1"


def report_document(report: Report) -> dict[str, Any]:
    """Return the document of a report."""
    return {
        "schema": SCHEMA,
        "agent": {"version": report.version, "host": report.host},
        "placement": {
            "mode": report.mode,
            "endpoint": report.endpoint,
            "max_version": report.max_version,
        },
        "dry_run": report.dry_run,
        "nodes": [node_document(node) for node in report.nodes],
        "requests": request_counts(report.requests),
        "errors": error_rows(report.errors),
        "exit_code": report.exit_code,
    }


def node_document(node: NodeReport) -> dict[str, Any]:
    """Return the document of one node. The uuids of a provisional node are null everywhere."""
    document = {
        "name": node.name,
        "uuid": node.uuid,
        "driver": node.driver,
        "state": node.state,
        "attempts": node.attempts,
        "operations": [_operation(outcome) for outcome in node.outcomes],
        "drift": [drift_document(drift, node.tree) for drift in node.drift],
        "tree": tree_rows(node),
        "usage": {
            "vcpus_used": node.usage.vcpus_used,
            "memory_mb_used": node.usage.memory_mb_used,
            "disk_mb_used": node.usage.disk_mb_used,
            "instances": node.usage.instances,
            "claims": node.usage.claims,
            "migrations": node.usage.migrations,
        },
        "requests": request_counts(node.requests),
        "seconds": {step: round(node.seconds.get(step, 0.0), 6) for step in STEPS},
        "errors": error_rows(node.errors),
    }
    hidden = provisional_names(node)
    return {key: _plain(value, hidden) for key, value in document.items()}


def tree_document(trees: Iterable[StoredTree]) -> dict[str, Any]:
    """Return the document of ``agent tree``, with the same rows as in a report."""
    return {
        "schema": TREE_SCHEMA,
        "nodes": [
            {
                "name": tree.name,
                "uuid": tree.uuid,
                "endpoint": tree.endpoint,
                "tree": _plain(tree_rows(tree), {}),
            }
            for tree in trees
        ],
        "errors": [],
        "exit_code": 0,
    }


def tree_rows(node: HasTree) -> list[dict[str, Any]]:
    """Return one row for each provider, parents before their children."""
    return [
        _row(
            node.tree.provider(uuid),
            uuid in node.owned,
            node.used.get(uuid, {}),
            counted_amounts(node, uuid),
        )
        for uuid in own_providers(node.tree, node.uuid)
    ]


def counted_amounts(node: HasTree, provider: ProviderUuid) -> Mapping[str, int] | None:
    """Return what Placement counts as used of the provider: resource class to amount; a class that
    is not in use may be left out. None if neither its usages nor its consumers are known.
    """
    asked, held = node.in_placement.get(provider), node.consumers.get(provider)
    if asked is not None or held is None:
        return asked
    return sum(map(Counter, held.values()), Counter[str]())


def _row(
    provider: Provider, owned: bool, used: Mapping[str, int], counted: Mapping[str, int] | None
) -> dict[str, Any]:
    return {
        "uuid": provider.uuid,
        "name": provider.name,
        "parent": provider.parent_uuid,
        "generation": provider.generation,
        "inventories": {
            name: {
                **completed(record),
                "used": used.get(name),
                "in_placement": None if counted is None else counted.get(name, 0),
            }
            for name, record in sorted(without_empty(provider.inventory).items())
        },
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
        "owned": owned,
    }


def _operation(outcome: Outcome) -> dict[str, Any]:
    operation = outcome.operation
    provider = operation.provider
    return {
        "op": operation.op,
        "provider": {"uuid": provider.uuid, "name": provider.name} if provider else None,
        "before": operation.before,
        "after": operation.after,
        "reason": operation.reason,
        "status": outcome.status,
        "error": outcome.error,
    }


def found_summary(found: NodeReport | LastFound) -> dict[str, Any]:
    """Return what the summary of a node says of drift and errors."""
    return {
        "drift": len(found.drift),
        "drift_kinds": dict(sorted(Counter(drift.kind for drift in found.drift).items())),
        "drift_warnings": sum(drift.severity == "warning" for drift in found.drift),
        "errors": error_rows(found.errors),
    }


def drift_document(drift: Drift, tree: ProviderTree) -> dict[str, Any]:
    """Return the document of a drift. ``tree``: has the provider's name."""
    provider = drift.provider
    subject = {
        key: value
        for key, value in (
            ("consumer", drift.consumer),
            ("provider", provider),
            (
                "provider_name",
                tree.name_of(provider) if provider and tree.exists(provider) else None,
            ),
        )
        if value is not None
    }
    return {
        "kind": drift.kind,
        "severity": drift.severity,
        **(subject or {"provider": None}),
        "detail": drift.detail,
        "remedy": drift.remedy,
    }


def request_counts(by_method: Mapping[str, int]) -> dict[str, int]:
    """Return the number of requests by method, and in total."""
    counted = {method: by_method.get(method, 0) for method in METHODS}
    return {"total": by_method.get("total", sum(counted.values())), **counted}


def _plain(value: Any, hidden: Mapping[str, str]) -> Any:
    """Return ``value`` in JSON's types. A provisional uuid becomes null; as a key or within a text,
    it becomes the provider's name.
    """
    if isinstance(value, str):
        return None if value in hidden else replace_uuids(value, hidden)
    if isinstance(value, Mapping):
        return {hidden.get(key, key): _plain(item, hidden) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Sequence):
        return [_plain(item, hidden) for item in value]
    return value
