"""A transport to a real Placement in this process."""

import threading

import pytest

from agent.placement.client import PlacementClient
from agent.placement.exchange import Exchange
from agent.placement.transport import Timeouts, Transport
from tests.support.placement import Placement, PlacementServer


def transport_to(placement: Placement, max_in_flight: int = 1) -> Transport:
    return Transport(
        placement.adapter(),
        timeouts=Timeouts(),
        max_in_flight=max_in_flight,
        cancelled=threading.Event(),
    )


@pytest.fixture
def transport(placement: PlacementServer) -> Transport:
    """One request at a time."""
    return transport_to(placement)


@pytest.fixture
def client(transport: Transport) -> PlacementClient:
    """A client of one cycle."""
    return PlacementClient(Exchange(transport, "req-00000000-0000-4000-8000-000000000001"))
