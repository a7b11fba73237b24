"""The JSON report, to the letter of its schema: other tools rely on every name in it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.model.inventory import completed, without_empty
from agent.model.provider_tree import Provider, ProviderTree
from agent.model.report import METHODS, STEPS, Drift, NodeReport, Outcome, Problem, Report
from agent.render.own_tree import own_providers

SCHEMA = "compute-node-agent/report/1"
TREE_SCHEMA = "compute-node-agent/tree/1"


def dumps(document: Mapping[str, Any]) -> str:
    """The one document on stdout. Pure ASCII, so that every stream can carry every name."""
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def report_document(report: Report) -> dict[str, Any]:
    """The whole report."""
    return {
        "schema": SCHEMA,
        "agent": {"version": report.version, "host": report.host},
        "placement": {"mode": report.mode, "endpoint": report.endpoint, "max_version": report.max_version},
        "dry_run": report.dry_run,
        "nodes": [node_document(node) for node in report.nodes],
        "requests": _requests(report.requests),
        "errors": _errors(report.errors),
        "exit_code": report.exit_code,
    }


def node_document(node: NodeReport) -> dict[str, Any]:
    """One node of the report. The uuids of a provisional node print as null, wherever they stand."""
    document = {
        "name": node.name,
        "uuid": node.uuid,
        "driver": node.driver,
        "state": node.state,
        "attempts": node.attempts,
        "operations": [_operation(outcome) for outcome in node.outcomes],
        "drift": [_drift(drift) for drift in node.drift],
        "tree": tree_rows(node.tree, node.uuid, node.owned, node.used),
        "usage": {
            "vcpus_used": node.usage.vcpus_used,
            "memory_mb_used": node.usage.memory_mb_used,
            "disk_mb_used": node.usage.disk_mb_used,
            "instances": node.usage.instances,
            "claims": node.usage.claims,
            "migrations": node.usage.migrations,
        },
        "requests": _requests(node.requests),
        "seconds": {step: round(node.seconds.get(step, 0.0), 6) for step in STEPS},
        "errors": _errors(node.errors),
    }
    names = _provisional_names(node) if node.provisional else {}
    return {key: _plain(value, names) for key, value in document.items()}


def tree_document(nodes: Sequence[NodeReport], errors: Iterable[Problem] = (), exit_code: int = 0) -> dict[str, Any]:
    """Trees alone, as ``agent tree`` shows them: each node's name, uuid and the rows that the report has."""
    return {
        "schema": TREE_SCHEMA,
        "nodes": [
            {"name": node.name, "uuid": node.uuid, "tree": _plain(tree_rows(node.tree, node.uuid, node.owned, node.used), {})} for node in nodes
        ],
        "errors": _errors(errors),
        "exit_code": exit_code,
    }


def tree_rows(tree: ProviderTree, root: str, owned: frozenset[str], used: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    """One row a provider, parents before their children."""
    return [_row(tree.provider(uuid), uuid in owned, used.get(uuid, {})) for uuid in own_providers(tree, root)]


def _row(provider: Provider, owned: bool, used: Mapping[str, int]) -> dict[str, Any]:
    return {
        "uuid": provider.uuid,
        "name": provider.name,
        "parent": provider.parent_uuid,
        "generation": provider.generation,
        "inventories": {
            name: {**completed(record), "used": used.get(name)} for name, record in sorted(without_empty(provider.inventory).items())
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


def _drift(drift: Drift) -> dict[str, Any]:
    subject = {key: value for key, value in (("consumer", drift.consumer), ("provider", drift.provider)) if value is not None}
    return {"kind": drift.kind, "severity": drift.severity, **(subject or {"provider": None}), "detail": drift.detail, "remedy": drift.remedy}


def _errors(errors: Iterable[Problem]) -> list[dict[str, str]]:
    return [{"code": error.code, "message": error.message, "remedy": error.remedy} for error in errors]


def _requests(requests: Mapping[str, int]) -> dict[str, int]:
    counted = {method: requests.get(method, 0) for method in METHODS}
    return {"total": requests.get("total", sum(counted.values())), **counted}


def _provisional_names(node: NodeReport) -> dict[str, str]:
    """Every uuid made up for this node, with the provider's name."""
    created = {outcome.operation.provider for outcome in node.outcomes if outcome.operation.op == "create-provider"}
    names: dict[str, str] = {provider.uuid: provider.name for provider in created if provider}
    names |= {uuid: node.tree.name_of(uuid) for uuid in own_providers(node.tree, node.uuid)}
    return {**names, node.uuid: node.name}


def _plain(value: Any, provisional: Mapping[str, str]) -> Any:
    """``value`` in JSON's own types; a provisional uuid becomes null, and as a key the provider's name."""
    if isinstance(value, str):
        return None if value in provisional else value
    if isinstance(value, Mapping):
        return {provisional.get(key, key): _plain(one, provisional) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Sequence):
        return [_plain(one, provisional) for one in value]
    return value
