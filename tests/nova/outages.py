"""What nova gets from its own report client, and from the agent's engine, while Placement is away or
another node shares with this one. Run by nova's Python; prints a JSON document:
``{case: [with nova's own client, with the engine]}``.
"""

import json
import types
import warnings
from collections.abc import Callable
from typing import Any

warnings.simplefilter("ignore")

# ruff: noqa: E402
# isort: off
# The first import of nova, as its commands have it.
from nova.cmd import compute  # noqa: F401

# isort: on
from nova import config, context, exception
from nova.compute import manager, resource_tracker
from nova.scheduler.client import report

from agent.nova.report_client import MirroredReportClient
from agent.placement.server import OptionalStorage
from tests.support import faults
from tests.support.agent import new_uuid, total
from tests.support.placement import PlacementServer

CONNECTIONS = (faults.refused(), faults.reset(), faults.cut(), faults.unresolved())
RESHAPES = (
    faults.refused(),
    faults.answer(503),
    faults.html(502),
    faults.answer(500),
    faults.read_timeout(),
    faults.answer(403),
)
# As often as nova's tracker repeats a conflict.
ATTEMPTS = 4


class Site:
    """A compute node of nova, with its own client or the engine's, on a Placement of its own."""

    def __init__(self, *, engine: bool) -> None:
        self.placement = PlacementServer()
        own = report.SchedulerReportClient(adapter=self.placement.adapter())
        self.client: Any = MirroredReportClient(own, "here", OptionalStorage()) if engine else own
        self.context = context.get_admin_context()
        self.root = new_uuid()

    def update(self, name: str, root: str, shape: Callable[[Any], None]) -> None:
        tree = self.client.get_provider_subtree_and_ensure_root(self.context, root, name=name)
        shape(tree)
        self.client.update_from_provider_tree(self.context, tree)


def outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the type is what is asked for
        return type(error).__name__
    return "ok"


def interrupted_builds(site: Site) -> None:
    who = types.SimpleNamespace(reportclient=site.client, tracked_instances={})
    manager.ComputeManager._error_out_instances_whose_build_was_interrupted(
        who, site.context, set(), [site.root]
    )


def deleted_allocations(site: Site) -> None:
    who = types.SimpleNamespace(reportclient=site.client, tracked_instances={})
    resource_tracker.ResourceTracker._remove_deleted_instances_allocations(
        who, site.context, types.SimpleNamespace(uuid=site.root), [], {}
    )


def reshaped(site: Site, action: Any) -> str:
    """The end of a reshape, repeated as nova's tracker does."""

    def flat(tree: Any) -> None:
        tree.update_inventory("compute-1", {"VCPU": total(8), "MEMORY_MB": total(4096)})

    site.update("compute-1", site.root, flat)
    consumer, cell = new_uuid(), new_uuid()
    site.placement.other.claim({site.root: {"VCPU": 1, "MEMORY_MB": 512}}, consumer)
    site.placement.faults.add(action, method="POST", path="/reshaper", times=None)

    def reshape() -> None:
        tree = site.client.get_provider_subtree_and_ensure_root(
            site.context, site.root, name="compute-1"
        )
        held = site.client.get_allocations_for_provider_tree(site.context, "compute-1")
        if not tree.exists(cell):
            tree.new_child("compute-1_cell", site.root, uuid=cell)
        tree.update_inventory("compute-1_cell", {"VCPU": total(8)})
        tree.update_inventory("compute-1", {"MEMORY_MB": total(4096)})
        held[consumer]["allocations"] = {
            site.root: {"resources": {"MEMORY_MB": 512}},
            cell: {"resources": {"VCPU": 1}},
        }
        site.client.update_from_provider_tree(site.context, tree, allocations=held)

    for _ in range(ATTEMPTS):
        try:
            reshape()
        except (exception.PlacementReshapeConflict, exception.ResourceProviderUpdateConflict):
            continue
        except Exception as error:  # noqa: BLE001 - the type is what is asked for
            return type(error).__name__
        return "ok"
    return "conflict"


def shared(site: Site) -> str:
    """The end of an update of a node with which another node of the process shares."""
    other, aggregate = new_uuid(), new_uuid()

    def plain(tree: Any) -> None:
        tree.update_inventory("node-a", {"CUSTOM_BAREMETAL": total(1)})

    def sharing(tree: Any) -> None:
        tree.update_inventory("node-b", {"CUSTOM_BAREMETAL": total(1)})
        tree.update_traits("node-b", ["MISC_SHARES_VIA_AGGREGATE"])

    site.update("node-a", site.root, plain)
    site.update("node-b", other, sharing)
    for uuid in (site.root, other):
        site.placement.other.set_aggregates(uuid, {aggregate})
    return outcome(
        lambda: (site.update("node-a", site.root, plain), site.update("node-b", other, sharing))
    )


def ended(case: Callable[[Site], str], *, engine: bool) -> str:
    site = Site(engine=engine)
    try:
        return case(site)
    finally:
        site.placement.close()


def away(call: Callable[[Site], None], action: Any) -> Callable[[Site], str]:
    def case(site: Site) -> str:
        site.placement.faults.add(action, times=None)
        return outcome(lambda: call(site))

    return case


def main() -> None:
    config.parse_args(["nova-compute"], default_config_files=[], configure_db=False, init_rpc=False)
    cases: dict[str, Callable[[Site], str]] = {"a node that shares": shared}
    for action in CONNECTIONS:
        cases[f"interrupted builds: {action.name}"] = away(interrupted_builds, action)
        cases[f"deleted allocations: {action.name}"] = away(deleted_allocations, action)
    for action in RESHAPES:
        cases[f"reshape: {action.name}"] = lambda site, action=action: reshaped(site, action)
    found = {
        name: [ended(case, engine=engine) for engine in (False, True)]
        for name, case in cases.items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
