import json

from agent.model.finding import Problem
from agent.model.operation import Reshape
from agent.model.provider_tree import ProviderTree
from agent.render.document import dumps
from agent.render.json_report import node_document, report_document
from tests.unit.render.reports import (
    AGGREGATE,
    CELL,
    CONSUMER,
    ELSEWHERE,
    FOREIGN,
    GONE,
    PCPU,
    ROOT,
    node,
    report,
)

SIX = {"total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio"}


def strings(value):
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, str):
        yield value


def test_tree_rows_have_six_fields_and_used_and_leave_out_classes_without_units():
    root, cell, foreign = node_document(node())["tree"]
    assert list(root) == [
        "uuid",
        "name",
        "parent",
        "generation",
        "inventories",
        "traits",
        "aggregates",
        "owned",
    ]
    assert root["inventories"].keys() == {"VCPU", "MEMORY_MB"}
    assert root["inventories"]["VCPU"].keys() == SIX | {"used", "in_placement"}
    assert root["inventories"]["VCPU"]["used"] == 12
    assert root["inventories"]["VCPU"]["in_placement"] is None
    assert root["inventories"]["MEMORY_MB"]["used"] is None
    assert root["inventories"]["MEMORY_MB"]["max_unit"] == 2147483647
    assert root["traits"] == ["COMPUTE_NODE", "OWNER_NOVA"]
    assert root["aggregates"] == [AGGREGATE]
    assert (root["parent"], root["generation"], root["owned"]) == (None, 4, True)
    assert (cell["parent"], cell["generation"], cell["owned"]) == (ROOT, None, True)
    assert (foreign["uuid"], foreign["owned"]) == (FOREIGN, False)


def test_operations_print_before_after_status_and_error():
    operations = {row["op"]: row for row in node_document(node())["operations"]}
    assert all(
        list(row) == ["op", "provider", "before", "after", "reason", "status", "error"]
        for row in operations.values()
    )
    assert operations["ensure-trait"]["provider"] is None
    assert operations["ensure-trait"]["after"] == "CUSTOM_GOLD"
    assert operations["create-provider"]["provider"] == {"uuid": CELL, "name": "node-1_NUMA0"}
    assert operations["create-provider"]["before"] is None
    assert operations["create-provider"]["after"] == {
        "name": "node-1_NUMA0",
        "parent": ROOT,
        "uuid": CELL,
    }
    assert (operations["rename-provider"]["before"], operations["rename-provider"]["after"]) == (
        "old-1",
        "node-1",
    )
    assert (
        operations["reparent-provider"]["before"],
        operations["reparent-provider"]["after"],
    ) == (None, ROOT)
    assert operations["set-inventory"]["after"]["PCPU"] == PCPU
    assert (operations["set-traits"]["before"], operations["set-traits"]["after"]) == (
        ["OLD"],
        ["NEW"],
    )
    assert (operations["set-traits"]["status"], operations["set-traits"]["error"]) == (
        "failed",
        "409 from\nPlacement",
    )
    assert operations["reshape"]["after"] == {
        "inventories": {ROOT: {}, CELL: {"PCPU": PCPU}},
        "allocations": {CONSUMER: {CELL: {"PCPU": 2}}},
    }
    deleted, changed = operations["delete-allocations"], operations["set-allocations"]
    assert (deleted["provider"], deleted["before"], deleted["after"]) == (
        None,
        {CONSUMER: {ROOT: {"VCPU": 2, "MEMORY_MB": 2048}, CELL: {"PCPU": 1}}},
        None,
    )
    assert changed["before"] == {CONSUMER: {ROOT: {"VCPU": 2}, ELSEWHERE: {"VCPU": 2}}}
    assert changed["after"] == {CONSUMER: {ELSEWHERE: {"VCPU": 2}}}
    assert operations["delete-provider"]["after"] is None
    assert operations["delete-provider"]["provider"]["uuid"] == GONE


def test_drift_names_its_consumer_or_its_provider():
    first, second = node_document(node())["drift"]
    assert first == {
        "kind": "orphaned-allocation",
        "severity": "warning",
        "consumer": CONSUMER,
        "detail": "nobody knows it",
        "remedy": "delete it",
    }
    assert second == {
        "kind": "foreign-provider",
        "severity": "info",
        "provider": FOREIGN,
        "provider_name": "accelerator",
        "detail": "is kept",
        "remedy": "",
    }


def test_provisional_reshape_names_providers_where_uuids_are_keys():
    document = node_document(node(provisional=True))
    (after,) = [row["after"] for row in document["operations"] if row["op"] == Reshape.op]
    assert after == {
        "inventories": {"node-1": {}, "node-1_NUMA0": {"PCPU": PCPU}},
        "allocations": {CONSUMER: {"node-1_NUMA0": {"PCPU": 2}}},
    }


def test_provisional_uuids_within_texts_are_names():
    document = node_document(
        node(provisional=True, errors=(Problem("x", f"provider {ROOT} is taken", ""),))
    )
    assert document["errors"][0]["message"] == "provider node-1 is taken"


def test_output_is_ascii_and_gives_back_every_name():
    name = "nöde\u202e\n\x1b[31m"
    made = ProviderTree()
    made.new_root(name, ROOT)
    text = dumps(report_document(report(nodes=(node(name=name, tree=made),))))
    assert text.isascii()
    assert "\x1b" not in text
    assert json.loads(text)["nodes"][0]["tree"][0]["name"] == name
