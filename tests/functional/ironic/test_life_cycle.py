"""Nodes of a real ironic on their way through its states: Placement follows the table, and offers
exactly the free ones.
"""

from collections.abc import Collection

import pytest

from tests.functional.ironic.conftest import Metal
from tests.functional.ironic.ironic import Ironic
from tests.functional.ironic.metal import MetalAgent
from tests.support.agent import new_uuid
from tests.support.placement import PlacementServer

pytestmark = pytest.mark.long

GOLD = "CUSTOM_BAREMETAL_GOLD"


def unit(reserved: int) -> dict[str, dict[str, float]]:
    return {
        GOLD: {
            "total": 1,
            "reserved": reserved,
            "min_unit": 1,
            "max_unit": 1,
            "step_size": 1,
            "allocation_ratio": 1.0,
        }
    }


class Scene:
    """An agent, its ironic and its Placement."""

    def __init__(self, agent: MetalAgent, ironic: Ironic, placement: PlacementServer) -> None:
        self.agent, self.ironic, self.placement = agent, ironic, placement

    def offers(self, *nodes: str) -> None:
        """After the next pass, exactly these nodes can be had."""
        self.agent.nodes()
        self.has(nodes)

    def has(self, nodes: Collection[str]) -> None:
        answer = self.placement.other.call(
            "GET", f"/allocation_candidates?resources={GOLD}:1"
        ).json()
        assert set(answer["provider_summaries"]) == set(nodes)

    def reserved(self, node: str) -> int:
        inventory = self.placement.dump()["providers"][node]["inventories"]
        assert list(inventory) == [GOLD]
        return int(inventory[GOLD]["reserved"])


@pytest.fixture
def scene(metal: Metal, ironic: Ironic, placement: PlacementServer) -> Scene:
    return Scene(metal(), ironic, placement)


def test_an_available_node_is_one_unit_of_its_class_for_anybody(
    scene: Scene, placement: PlacementServer
) -> None:
    node = scene.ironic.available("baremetal-gold")
    (report,) = scene.agent.nodes().values()
    assert (report.uuid, report.name, report.state) == (node, node, "changed")
    root = placement.dump()["providers"][node]
    assert (root["name"], root["parent"], root["inventories"]) == (node, None, unit(0))
    assert set(root["traits"]) == {
        "COMPUTE_NODE",
        "OWNER_NOVA",
        "CUSTOM_COMPUTE_NODE_AGENT_METAL_1",
    }
    scene.has([node])
    placement.clear()
    assert [one.state for one in scene.agent.nodes().values()] == ["in-sync"]
    assert placement.count() == 1


def test_a_node_is_reserved_from_its_deployment_until_it_is_cleaned_and_available_again(
    scene: Scene,
) -> None:
    ironic, free, node = scene.ironic, scene.ironic.available(), scene.ironic.create()
    scene.offers(free)
    assert ironic.node(node)["provision_state"] == "enroll"
    ironic.power(node, "off")
    ironic.provision(node, "manage", "manageable")
    scene.offers(free)
    ironic.provision(node, "provide", "available")
    scene.offers(free, node)
    ironic.set(node, instance_uuid=new_uuid())
    # Still available, but somebody is about to deploy it.
    scene.offers(free)
    ironic.provision(node, "active", "active")
    assert scene.reserved(node) == 1
    scene.offers(free)
    ironic.maintenance(node, on=True)
    scene.offers(free)
    ironic.maintenance(node, on=False)
    ironic.provision(node, "deleted", "available")
    scene.offers(free, node)


def test_a_node_of_which_the_power_is_not_known_is_not_offered(scene: Scene) -> None:
    node = scene.ironic.create()
    scene.ironic.provision(node, "manage", "manageable")
    scene.ironic.provision(node, "provide", "available")
    assert scene.ironic.node(node)["power_state"] is None
    scene.offers()
    scene.ironic.power(node, "on")
    scene.offers(node)


def test_a_used_node_is_not_reserved_if_the_workaround_says_so(
    metal: Metal, ironic: Ironic, placement: PlacementServer
) -> None:
    node = ironic.available()
    ironic.set(node, instance_uuid=new_uuid())
    scene = Scene(metal(workarounds={"skip_reserve_in_use_ironic_nodes": True}), ironic, placement)
    scene.offers(node)
    ironic.provision(node, "active", "active")
    scene.offers()


def test_a_node_without_a_class_is_an_error_of_its_own(scene: Scene) -> None:
    bare, good = scene.ironic.available(None), scene.ironic.available()
    report = scene.agent.run()
    assert report.errors == ()
    states = {
        one.uuid: (one.state, [problem.message for problem in one.errors]) for one in report.nodes
    }
    assert states == {
        good: ("changed", []),
        bare: ("failed", [f"node {bare} has no resource class"]),
    }
    scene.has([good])
    scene.ironic.set(bare, resource_class="baremetal-gold")
    scene.offers(bare, good)


def test_a_node_that_ironic_says_is_deleted_goes_and_one_in_use_is_kept_with_an_alarm(
    scene: Scene, placement: PlacementServer
) -> None:
    gone, used, stays = (scene.ironic.available() for _ in range(3))
    scene.offers(gone, used, stays)
    consumer = placement.other.claim({used: {GOLD: 1}})
    for node in (gone, used):
        scene.ironic.delete(node)
    reports = scene.agent.nodes()
    assert set(placement.dump()["providers"]) == {used, stays}
    (drift,) = reports[used].drift
    assert (drift.kind, drift.severity) == ("held-device", "warning")
    scene.has([stays])
    placement.other.release(consumer)
    scene.offers(stays)
    assert set(placement.dump()["providers"]) == {stays}


def test_traits_follow_the_node_and_those_of_others_stay(
    scene: Scene, placement: PlacementServer
) -> None:
    node = scene.ironic.available()
    scene.ironic.set_traits(node, "CUSTOM_A", "HW_CPU_X86_VMX")
    scene.agent.nodes()
    assert {"CUSTOM_A", "HW_CPU_X86_VMX"} <= placement.other.traits(node)
    placement.other.set_traits(node, placement.other.traits(node) | {"CUSTOM_OPS"})
    scene.agent.nodes()
    scene.ironic.set_traits(node)
    scene.agent.nodes()
    assert placement.other.traits(node) == {
        "CUSTOM_OPS",
        "COMPUTE_NODE",
        "OWNER_NOVA",
        "CUSTOM_COMPUTE_NODE_AGENT_METAL_1",
    }
    scene.agent.kill()
    placement.clear()
    assert [one.state for one in scene.agent.nodes().values()] == ["in-sync"]
    assert placement.count() == 1


def test_another_class_of_a_node_that_somebody_has_is_not_offered_until_he_gives_it_back(
    scene: Scene, placement: PlacementServer
) -> None:
    node = scene.ironic.available("silver")
    scene.agent.nodes()
    consumer = placement.other.claim({node: {"CUSTOM_SILVER": 1}})
    scene.ironic.set(node, resource_class="baremetal-gold")
    for _ in range(2):
        (report,) = scene.agent.nodes().values()
        assert [one.kind for one in report.drift] == ["held-device"]
        records = placement.dump()["providers"][node]["inventories"]
        assert {
            name: (record["total"], record["reserved"]) for name, record in records.items()
        } == {GOLD: (1, 1), "CUSTOM_SILVER": (1, 1)}
        scene.has([])
    placement.other.release(consumer)
    scene.offers(node)
    assert placement.dump()["providers"][node]["inventories"] == unit(0)


def test_an_allocation_and_its_deployment_are_no_overcommitment(
    scene: Scene, placement: PlacementServer
) -> None:
    node = scene.ironic.available()
    scene.agent.nodes()
    instance = placement.other.claim({node: {GOLD: 1}})
    scene.ironic.deploy(node, instance)
    placement.clear()
    (report,) = scene.agent.nodes().values()
    assert (report.state, report.drift) == ("changed", ())
    # The list, what the claim moved, and the one write.
    assert placement.count("PUT") == 1
    assert not [one for one in placement.requests if one.path.endswith("/usages")]


def test_a_pattern_chooses_nodes(scene: Scene, placement: PlacementServer) -> None:
    nodes = [
        scene.ironic.available(uuid=f"{number}0000000-0000-4000-8000-000000000000")
        for number in range(1, 4)
    ]
    assert set(scene.agent.nodes("[12]*")) == set(nodes[:2]) == set(placement.dump()["providers"])
