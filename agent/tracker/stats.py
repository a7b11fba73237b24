"""Numbers about a node's guests, under the names that operators know. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

from agent.model.instance import Instance, TaskState

Stats = Mapping[str, int | str | None]

# Tasks that keep disks and networks busy.
IO_TASKS: frozenset[TaskState] = frozenset({"resize_migrating", "rebuilding", "resize_prep", "image_snapshot", "image_backup", "rescuing", "unshelving"})


def stats(instances: Iterable[Instance], driver: Stats, failed_builds: int) -> Stats:
    """The counts of ``instances`` that take something of the node, with what the ``driver`` reports beside them."""
    counts: Counter[str] = Counter(num_instances=0, io_workload=0)
    for one in instances:
        if one.removed:
            continue
        counts["num_instances"] += 1
        counts[f"num_vm_{one.vm_state}"] += 1
        counts[f"num_task_{one.task_state}"] += 1
        counts[f"num_os_type_{one.os_type}"] += 1
        counts[f"num_proj_{one.project_id}"] += 1
        counts["io_workload"] += one.vm_state == "building" or one.task_state in IO_TASKS
    return {"uptime": None, **driver, **counts, "failed_builds": failed_builds}
