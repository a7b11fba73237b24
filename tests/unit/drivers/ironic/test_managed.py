"""Which nodes are an agent's own."""

from collections.abc import Collection

from drivers.ironic.managed import NodeList, managed_nodes
from drivers.ironic.node import BareMetalNode
from tests.unit.drivers.ironic.samples import INSTANCE, NODE, OTHER, node

THEIRS = "9d8f7e6c-5b4a-4392-8170-6f5e4d3c2b1b"


class Instances:
    """Records that know of an instance of somebody else, and of one of ours on ``OTHER``."""

    def __init__(self) -> None:
        self.asked: list[Collection[str]] = []

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:
        self.asked.append(list(instances))
        return frozenset({THEIRS} & set(instances))

    def nodes(self) -> frozenset[str]:
        return frozenset({OTHER})


def never(uuid: str) -> BareMetalNode | None:
    raise AssertionError(f"nobody need ask for {uuid}")


def test_once_that_instance_is_gone_or_the_node_is_it_is_not():
    assert managed_nodes([node()], Instances(), {OTHER: node(uuid=OTHER)}.get) == [node()]
    assert managed_nodes([node()], Instances(), lambda _uuid: None) == [node()]


def test_the_records_are_asked_once_and_only_for_nodes_with_instances():
    records = Instances()
    managed_nodes([node(), node(uuid=OTHER, instance_uuid=INSTANCE)], records, never)
    assert records.asked == [[INSTANCE]]


def test_doubts_about_properties_are_told_once_and_again_when_they_change(caplog):
    doubtful = node(properties={"cpus": "many"})
    first = NodeList.of([doubtful], 1.0)
    first.tell_doubts(NodeList())
    NodeList.of([doubtful], 2.0).tell_doubts(first)
    assert caplog.messages == [f"node {NODE}: cpus = 'many' is no number; it counts as 0"]
    NodeList.of([node(properties={"cpus": "few"})], 3.0).tell_doubts(first)
    assert len(caplog.messages) == 2
