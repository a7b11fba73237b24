"""A daemon in its first pass over many nodes, on an empty store: a claim on a node that the pass
has not reached has to wait, and is not denied.
"""

import json
import threading

from agent.api.client import ApiClient, ApiProblem
from agent.api.socket_file import UnixConnection
from drivers.fake.catalogue import baremetal_uuid
from tests.support.faults import Action
from tests.support.service_manager import Service, until
from tests.support.site import flavor_body, instance_body
from tests.support.system import AgentCommand
from tests.support.tracking import F1, uuid_of

COUNT = 4


def claim_on(node):
    return {
        "id": uuid_of(f"claim-{node}"),
        "node": node,
        "instance": instance_body(node),
        "flavor": flavor_body(F1),
    }


def ask(path, body):
    """The answer to a claim, and its document."""
    connection = UnixConnection(path, 60)
    connection.request("POST", "/v1/claims", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    document = json.loads(answer.read())
    connection.close()
    return answer, document


def test_a_node_that_the_first_pass_has_not_reached_is_waited_for_and_one_that_is_not_listed_is_unknown(
    http_placement, proxy, tmp_path
):
    command = AgentCommand(
        tmp_path / "agent",
        {
            "DEFAULT": {
                "compute_driver": "fake.baremetal",
                "host": "node-a",
                "state_path": "/nonexistent",
                "update_resources_interval": -1,
            },
            "fake": {"baremetal_nodes": COUNT},
            "compute": {"workers": 1},
            "placement": {
                "auth_type": "admin_token",
                "endpoint": proxy.url,
                "token": "t",
                "max_in_flight": 1,
            },
        },
    )
    service, client = Service(command), ApiClient(command.socket)
    made, goes_on = [], threading.Event()

    def first_waits(exchange):
        made.append(exchange.body["uuid"])
        if len(made) == 1:
            goes_on.wait(240)

    proxy.faults.add(
        Action("a pass that stands still", before=first_waits),
        method="POST",
        path="^/resource_providers$",
        times=None,
    )
    try:
        with service.running():
            until(lambda: len(made) == 1, lambda: service)
            left = next(uuid for uuid in map(baremetal_uuid, range(COUNT)) if uuid not in made)
            for node, code, status, retry_after in (
                (left, "node.not-ready", 503, "1"),
                (uuid_of("nobody's"), "node.unknown", 404, None),
            ):
                answer, problem = ask(command.socket, claim_on(node))
                assert (answer.status, problem["code"], answer.getheader("Retry-After")) == (
                    status,
                    code,
                    retry_after,
                )
            assert client.create_claim(claim_on(made[0]))["state"] == "held"
            goes_on.set()
            until(lambda: len(made) == COUNT, lambda: service)

            def claimed():
                try:
                    return client.create_claim(claim_on(left))
                except ApiProblem as problem:
                    assert problem.status == 503, problem
                    return None

            assert until(claimed, lambda: service)["state"] == "held"
    finally:
        goes_on.set()
