"""openapi.yaml describes what there is, in the words of the records."""

import re
from typing import get_args

import pytest
from falcon.routing import map_http_methods

from agent.api.application import routes
from agent.api.openapi import read, with_requests
from agent.api.operations import OPERATIONS
from agent.model import devices, instance, node_records, report

SCHEMAS = read()["components"]["schemas"]


def operations():
    for path, item in read()["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation


def test_every_path_is_served_and_every_one_that_is_served_is_described(api):
    assert set(routes(api.service, api.api.metrics, 1)) == set(read()["paths"])


def test_every_described_method_has_a_responder(api):
    served = {
        (path, method.lower())
        for path, (resource, suffix) in routes(api.service, api.api.metrics, 1).items()
        for method in map_http_methods(resource, suffix)
    }
    assert served == {(path, method) for path, method, _ in operations()}


def test_every_operation_has_an_id_of_its_own_and_can_be_refused():
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(ids)) == len(ids)
    assert all(
        operation["responses"]["default"] == {"$ref": "#/components/responses/Problem"}
        for _, _, operation in operations()
    )


def test_parameters_in_paths_are_those_that_are_declared():
    for (path, _), operation in OPERATIONS.items():
        assert set(re.findall(r"{(\w+)}", path)) == set(operation.path.__struct_fields__)


def test_requests_are_described_as_they_are_taken():
    """Otherwise run ``python -m agent.api.openapi``."""
    assert with_requests(read()) == read()


def test_every_schema_is_used():
    text = str(read())
    assert [name for name in SCHEMAS if f"'#/components/schemas/{name}'" not in text] == []


@pytest.mark.parametrize(
    ("name", "literal"),
    [
        ("VmState", instance.VmState),
        ("MigrationType", node_records.MigrationType),
        ("MigrationStatus", node_records.MigrationStatus),
        ("NodeState", report.AuditState),
    ],
)
def test_enumerations_are_those_of_the_records(name, literal):
    assert SCHEMAS[name]["enum"] == list(get_args(literal))


def test_a_task_state_may_be_none_too():
    assert SCHEMAS["TaskState"]["enum"] == [None, *get_args(instance.TaskState)]


@pytest.mark.parametrize(
    ("schema", "field", "literal"),
    [
        ("Claim", "purpose", node_records.Purpose),
        ("Claim", "half", node_records.Half),
        ("Claim", "state", node_records.ClaimState),
        ("Device", "type", devices.DeviceType),
        ("Device", "state", devices.DeviceState),
        ("Operation", "status", report.OperationStatus),
    ],
)
def test_enumerations_within_records_are_those_of_the_records(schema, field, literal):
    assert SCHEMAS[schema]["properties"][field]["enum"] == list(get_args(literal))
