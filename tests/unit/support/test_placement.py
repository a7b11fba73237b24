"""The Placement inside the test's process."""

import threading
import uuid
from typing import Any

import pytest

from tests.support import faults, placement_app
from tests.support.other_client import PROJECT, USER
from tests.support.placement import PlacementServer


def test_each_server_is_empty_and_apart_from_others(placement: PlacementServer) -> None:
    empty = placement.dump()
    assert empty == {
        "providers": {},
        "consumers": {},
        "custom_traits": [],
        "custom_resource_classes": [],
    }
    second = PlacementServer()
    second.other.create_provider("node")
    assert placement.dump() == empty
    assert placement.adapter(version="1.39").get("/resource_providers").json() == {
        "resource_providers": []
    }
    assert len(second.dump()["providers"]) == 1
    second.close()


def test_reset_forgets_state_log_and_faults(placement: PlacementServer) -> None:
    placement.other.create_provider("node")
    placement.faults.add(faults.answer(503))
    placement.adapter().get("/resource_classes")
    placement.reset()
    placement.faults.add(faults.answer(500), path="never")
    assert placement.dump()["providers"] == {}
    assert placement.requests == []
    assert placement.adapter(version="1.39").get("/resource_providers").status_code == 200


def test_requests_are_logged_in_order_with_all_a_test_asks_for(placement: PlacementServer) -> None:
    client = placement.adapter()
    client.get("/")
    body = {"uuid": str(uuid.uuid4()), "name": "rack 7/a&b"}
    posted = client.post(
        "/resource_providers",
        json=body,
        microversion="1.39",
        headers={"X-Openstack-Request-Id": "req-mine"},
    )
    client.get("/resource_providers?name=rack+7%2Fa%26b", microversion="1.20")
    client.delete("/traits/CUSTOM%5FX", microversion="1.6")
    root, post, get, delete = placement.requests
    assert (root.method, root.path, root.version, root.body) == ("GET", "/", None, None)
    assert (post.path, post.version, post.request_id, post.body) == (
        "/resource_providers",
        "1.39",
        "req-mine",
        body,
    )
    assert (post.status, post.reached, post.fault) == (200, True, None)
    assert post.server_request_id == posted.headers["x-openstack-request-id"]
    assert (get.target, get.version) == ("/resource_providers?name=rack+7%2Fa%26b", "1.20")
    assert (delete.path, delete.status) == ("/traits/CUSTOM_X", 404)
    assert placement.writes() == [post, delete]
    assert (placement.count(), placement.count("GET"), placement.count("PUT")) == (4, 2, 0)
    placement.clear()
    assert placement.requests == []


def test_a_user_without_the_service_role_may_not_reshape(placement: PlacementServer) -> None:
    provider = placement.other.create_provider("node")
    body = {
        "inventories": {
            provider: {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1}}}
        },
        "allocations": {},
    }
    assert placement.adapter("admin", "1.39").post("/reshaper", json=body).status_code == 403
    assert placement.adapter("admin", "1.39").get("/resource_providers").status_code == 200
    assert placement.adapter(version="1.39").post("/reshaper", json=body).status_code == 204


def test_an_older_server_says_so_and_refuses_newer_requests(placement: PlacementServer) -> None:
    older = PlacementServer(max_version="1.29")
    client = older.adapter()
    assert client.get("/").json()["versions"][0]["max_version"] == "1.29"
    assert client.get("/resource_providers", microversion="1.29").status_code == 200
    refused = client.get("/resource_providers", microversion="1.30")
    assert (refused.status_code, refused.json()["errors"][0]["max_version"]) == (406, "1.29")
    assert client.post("/reshaper", json={}, microversion="1.29").status_code == 404
    assert older.other.version == "1.29"
    assert placement.adapter().get("/").json()["versions"][0]["max_version"] == "1.39"
    older.close()


def test_threads_may_share_a_server(placement: PlacementServer) -> None:
    client = placement.adapter(version="1.39")
    statuses: list[int] = []

    def create(number: int) -> None:
        for part in range(5):
            body = {"uuid": str(uuid.uuid4()), "name": f"node-{number}-{part}"}
            statuses.append(client.post("/resource_providers", json=body).status_code)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 20
    assert len(placement.dump()["providers"]) == 20


def test_the_process_wide_database_of_placement_is_left_alone(placement: PlacementServer) -> None:
    from placement import db_api
    from placement.objects import resource_class, trait

    context_manager = db_api.placement_context_manager
    before = (
        context_manager._root_factory,
        trait._TRAITS_SYNCED,
        resource_class._RESOURCE_CLASSES_SYNCED,
    )
    placement.other.create_provider("node")
    PlacementServer().close()
    assert (
        context_manager._root_factory,
        trait._TRAITS_SYNCED,
        resource_class._RESOURCE_CLASSES_SYNCED,
    ) == before


def test_the_database_is_the_one_that_placement_makes_itself(placement: PlacementServer) -> None:
    import os_resource_classes
    import os_traits

    client = placement.adapter(version="1.39")
    classes = {each["name"] for each in client.get("/resource_classes").json()["resource_classes"]}
    assert classes == set(os_resource_classes.STANDARDS)
    assert set(client.get("/traits").json()["traits"]) == set(os_traits.get_traits())


# --- dump and the other client --------------------------------------------------------------------


@pytest.fixture
def populated(placement: PlacementServer) -> tuple[str, str, str, str]:
    """A root, its child, a consumer, an aggregate."""
    other = placement.other
    aggregate = str(uuid.uuid4())
    root = other.create_provider("node")
    child = other.create_provider("node_NUMA0", parent=root)
    other.set_inventory(
        root,
        {"MEMORY_MB": 1024, "CUSTOM_FPGA": {"total": 2, "reserved": 1, "allocation_ratio": 1.5}},
    )
    other.set_inventory(child, {"VCPU": {"total": 4, "max_unit": 4}})
    other.set_traits(root, ["HW_CPU_X86_AVX", "CUSTOM_RACK7"])
    other.set_aggregates(root, [aggregate])
    consumer = other.claim({root: {"MEMORY_MB": 64}, child: {"VCPU": 2}})
    return root, child, consumer, aggregate


def test_the_dump_holds_everything(
    placement: PlacementServer, populated: tuple[str, str, str, str]
) -> None:
    root, child, consumer, aggregate = populated
    whole = {
        "reserved": 0,
        "min_unit": 1,
        "max_unit": 2147483647,
        "step_size": 1,
        "allocation_ratio": 1.0,
    }
    assert placement.dump() == {
        "providers": {
            root: {
                "name": "node",
                "parent": None,
                "generation": 4,
                "inventories": {
                    "MEMORY_MB": {**whole, "total": 1024},
                    "CUSTOM_FPGA": {**whole, "total": 2, "reserved": 1, "allocation_ratio": 1.5},
                },
                "traits": ["CUSTOM_RACK7", "HW_CPU_X86_AVX"],
                "aggregates": [aggregate],
            },
            child: {
                "name": "node_NUMA0",
                "parent": root,
                "generation": 2,
                "inventories": {"VCPU": {**whole, "total": 4, "max_unit": 4}},
                "traits": [],
                "aggregates": [],
            },
        },
        "consumers": {
            consumer: {
                "generation": 1,
                "project_id": PROJECT,
                "user_id": USER,
                "allocations": {root: {"MEMORY_MB": 64}, child: {"VCPU": 2}},
            }
        },
        "custom_traits": ["CUSTOM_RACK7"],
        "custom_resource_classes": ["CUSTOM_FPGA"],
    }


def test_the_dump_says_what_the_api_says(
    placement: PlacementServer, populated: tuple[str, str, str, str]
) -> None:
    other, consumer = placement.other, populated[2]
    dump = placement.dump()
    assert set(dump["providers"]) == {each["uuid"] for each in other.tree(populated[0])}
    for provider, state in dump["providers"].items():
        shown: dict[str, Any] = other.provider(provider)
        assert (state["name"], state["parent"], state["generation"]) == (
            shown["name"],
            shown["parent_provider_uuid"],
            shown["generation"],
        )
        assert state["inventories"] == other.inventory(provider)
        assert set(state["traits"]) == other.traits(provider)
        assert set(state["aggregates"]) == other.aggregates(provider)
    assert (
        dump["consumers"][consumer]["generation"]
        == other.allocations(consumer)["consumer_generation"]
    )


def test_the_dump_shows_the_consumer_that_the_api_hides(placement: PlacementServer) -> None:
    consumer = str(uuid.uuid4())
    body = {"allocations": {}, "project_id": PROJECT, "user_id": USER, "consumer_generation": None}
    placement.other.call("PUT", f"/allocations/{consumer}", body)
    assert placement.other.allocations(consumer) == {"allocations": {}}
    assert placement.dump()["consumers"][consumer]["generation"] == 0


def test_a_claim_replaces_and_a_release_frees(
    placement: PlacementServer, populated: tuple[str, str, str, str]
) -> None:
    root, child, consumer, _ = populated
    placement.other.claim({root: {"MEMORY_MB": 32}}, consumer)
    assert placement.dump()["consumers"][consumer]["allocations"] == {root: {"MEMORY_MB": 32}}
    placement.other.release(consumer)
    assert placement.dump()["consumers"] == {}
    placement.other.rename(child, "renamed")
    placement.other.reparent(child, None)
    assert (
        placement.dump()["providers"][child]["name"],
        placement.dump()["providers"][child]["parent"],
    ) == ("renamed", None)
    placement.other.delete_provider(child)
    assert [each["uuid"] for each in placement.other.tree(root)] == [root]


def test_the_other_client_fails_the_test_when_it_is_refused(
    placement: PlacementServer, populated: tuple[str, str, str, str]
) -> None:
    with pytest.raises(AssertionError, match="409"):
        placement.other.claim({populated[0]: {"MEMORY_MB": 4096}})


def test_the_configuration_is_that_of_the_given_file(
    placement: PlacementServer, tmp_path: Any
) -> None:
    file = tmp_path / "placement.conf"
    file.write_text(
        "[placement_database]\nconnection = sqlite:///elsewhere\n[api]\nauth_strategy = keystone\n"
    )
    conf = placement_app.configuration(file)
    assert (conf.placement_database.connection, conf.api.auth_strategy) == (
        "sqlite:///elsewhere",
        "keystone",
    )
