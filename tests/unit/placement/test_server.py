"""What one server offers: asked for once, refused if too old, learned by many nodes together."""

import dataclasses

import pytest

from agent.errors import PlacementTooOld
from agent.placement.server import Server
from tests.support.placement import PlacementServer
from tests.unit.placement.conftest import transport_to


class Kept:
    """The part of a store that a server uses, in memory."""

    def __init__(self):
        self.saved = {}

    def capabilities(self, endpoint):
        return self.saved.get(endpoint)

    def save_capabilities(self, capabilities):
        self.saved[capabilities.endpoint] = capabilities


def server_of(placement, kept=None, **options) -> Server:
    return Server(transport_to(placement), "http", kept or Kept(), **options)


@pytest.mark.parametrize(
    ("offered", "good"), [("1.29", False), ("1.9", False), ("1.30", True), ("1.36", True)]
)
def test_a_server_must_offer_1_30(offered, good):
    placement = PlacementServer(max_version=offered)
    kept = Kept()
    server = server_of(placement, kept)
    if good:
        assert server.connect(server.client()).max_version == offered
    else:
        with pytest.raises(
            PlacementTooOld,
            match=rf"needs placement 1\.30, server offers {offered} \({placement.url}\)",
        ):
            server.connect(server.client())
        assert kept.saved == {}
    placement.close()


def test_what_several_nodes_learn_adds_up(placement):
    server = server_of(placement)
    known = server.connect(server.client())
    server.learn(dataclasses.replace(known, traits=frozenset({"CUSTOM_A"}), can_reshape=False))
    merged = server.learn(dataclasses.replace(known, classes=frozenset({"CUSTOM_B"})))
    assert (
        merged
        == server.capabilities
        == dataclasses.replace(
            known,
            traits=frozenset({"CUSTOM_A"}),
            classes=frozenset({"CUSTOM_B"}),
            can_reshape=False,
        )
    )
    server.forget(known)
    assert server.capabilities == known


def test_each_client_has_a_request_id_of_its_own(placement):
    server = server_of(placement)
    one, other = server.client(), server.client()
    assert one.exchange.request_id.startswith("req-")
    assert one.exchange.request_id != other.exchange.request_id
