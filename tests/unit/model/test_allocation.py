import dataclasses

from agent.model.inventory import Allocation
from tests.unit.model.trees import N0, ROOT, STORAGE

CONSUMER = "c0000000-0000-4000-8000-000000000001"
HELD = Allocation(
    CONSUMER, {ROOT: {"VCPU": 2, "MEMORY_MB": 512}, STORAGE: {"DISK_GB": 10}}, "project", "user", 4
)


def test_a_driver_sees_the_generations_of_the_providers_and_placement_does_not():
    read = dataclasses.replace(HELD, provider_generations={ROOT: 7})
    assert read.as_driver_dict()["allocations"] == {
        ROOT: {"resources": {"VCPU": 2, "MEMORY_MB": 512}, "generation": 7},
        STORAGE: {"resources": {"DISK_GB": 10}},
    }
    assert read.as_body() == HELD.as_body() == HELD.as_driver_dict()


def test_the_edited_record_keeps_owner_and_generation_of_the_server():
    record = HELD.as_driver_dict()
    record["allocations"][N0] = {
        "resources": {"VCPU": record["allocations"][ROOT]["resources"].pop("VCPU")}
    }
    record |= {"project_id": "somebody", "user_id": "else", "consumer_generation": 99}
    moved = HELD.edited(record)
    assert moved == dataclasses.replace(
        HELD, resources={ROOT: {"MEMORY_MB": 512}, STORAGE: {"DISK_GB": 10}, N0: {"VCPU": 2}}
    )
    record["allocations"][N0]["resources"]["VCPU"] = 7
    assert moved.resources[N0] == {"VCPU": 2}
