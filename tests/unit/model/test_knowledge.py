"""What is known of a server, and what is ours on it."""

import pytest

from agent.model.mirror import PlacementView, ServerCapabilities
from tests.unit.model.trees import ROOT


@pytest.mark.parametrize(
    ("offered", "version", "offers"),
    [("1.39", "1.37", True), ("1.9", "1.30", False), ("1.30", "1.30", True), ("2.0", "1.37", True)],
)
def test_versions_compare_by_number(offered, version, offers):
    assert ServerCapabilities("http://placement", offered).offers(version) is offers


def test_a_new_view_is_empty_and_frozen():
    with pytest.raises(ValueError, match="frozen"):
        PlacementView().tree.new_root("node-a", ROOT)
