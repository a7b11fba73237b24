"""The numbers of a node."""

from agent.api.node_documents import stats
from agent.model.instance import Flavor, Instance
from agent.model.names import ConsumerUuid


def guest(number, **more):
    return Instance(
        uuid=ConsumerUuid(f"i{number}"),
        project_id=more.pop("project_id", "p1"),
        user_id="u",
        flavor=Flavor("1", "F1", 1, 64),
        **more,
    )


def test_an_empty_node_has_no_guests_and_no_load():
    assert stats([], 0) == {
        "uptime": None,
        "num_instances": 0,
        "io_workload": 0,
        "failed_builds": 0,
    }


def test_guests_are_counted_by_state_task_system_and_project():
    found = stats(
        [
            guest(1, vm_state="active", os_type="linux"),
            guest(2, vm_state="active", task_state="resize_prep", os_type="linux", project_id="p2"),
            guest(3, vm_state="building", task_state="spawning", os_type="windows"),
        ],
        2,
    )
    assert found == {
        "uptime": None,
        "failed_builds": 2,
        "num_instances": 3,
        "io_workload": 2,
        "num_vm_active": 2,
        "num_vm_building": 1,
        "num_task_None": 1,
        "num_task_resize_prep": 1,
        "num_task_spawning": 1,
        "num_os_type_linux": 2,
        "num_os_type_windows": 1,
        "num_proj_p1": 2,
        "num_proj_p2": 1,
    }


def test_what_takes_nothing_of_the_node_is_not_counted():
    gone = [
        guest(1, vm_state="deleted"),
        guest(2, vm_state="shelved_offloaded"),
        guest(3, vm_state="active", deleted=True),
    ]
    assert stats(gone, 0)["num_instances"] == 0
    returning = guest(4, vm_state="shelved_offloaded", task_state="spawning")
    assert stats([returning], 0)["num_instances"] == 1


def test_only_some_tasks_are_a_load_for_disks_and_networks():
    tasks = (
        "resize_migrating",
        "rebuilding",
        "resize_prep",
        "image_snapshot",
        "image_backup",
        "rescuing",
        "unshelving",
        "rebooting",
        "deleting",
        None,
    )
    assert (
        stats(
            [
                guest(number, vm_state="active", task_state=task)
                for number, task in enumerate(tasks)
            ],
            0,
        )["io_workload"]
        == 7
    )
