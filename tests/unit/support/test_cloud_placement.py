"""The model of the walk over two hosts notices what an agent must not do in Placement."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.cloud_placement import Held, Holdings, Offered, Offers
from tests.support.compute_host import GPU, VF
from tests.support.placement import PlacementServer
from tests.support.tracking import Time
from tests.support.walked_host import WalkedHost

CARD, OTHER_CARD, FUNCTIONS = "0000:81:00.0", "0000:81:01.0", "0000:82:03.0"


@pytest.fixture
def host(placement: PlacementServer, tmp_path: Path) -> WalkedHost:
    return WalkedHost("a", placement, tmp_path, None, Time())


def held(**of: int) -> Held:
    return {name: Counter({"PCPU": amount}) for name, amount in of.items()}


def test_a_share_of_another_provider_is_noticed_unless_it_may_be_moved() -> None:
    holdings = Holdings({"g": {"a": held(NUMA0=2)}})
    found = {"g": {"a": held(NUMA1=2)}}
    assert holdings.wrong(found, lambda *_: False) == [
        f"consumer g holds {held(NUMA1=2)} of a instead of {held(NUMA0=2)}"
    ]
    assert holdings.wrong(found, lambda *_: True) == []
    assert holdings.wrong({"g": {"a": held(NUMA0=2)}}, lambda *_: False)


def test_only_what_is_over_may_go_and_only_once() -> None:
    holdings = Holdings({"g": {"a": held(NUMA0=2)}}, {("g", "a")})
    assert holdings.left()
    assert holdings.wrong({}, lambda *_: True) == []
    assert holdings.left() == []
    holdings.shares["g"]["a"] = held(NUMA0=2)
    assert holdings.wrong({}, lambda *_: True) == [
        f"consumer g holds None of a instead of {held(NUMA0=2)}"
    ]


def wrong(
    host: WalkedHost,
    before: Offered,
    found: Offered,
    *layouts: str,
    calm: bool = False,
    held: tuple[str, ...] = (),
) -> list[str]:
    return list(Offers({host.name: before}).wrong(host, found, layouts, calm=calm, held=held))  # type: ignore[arg-type]


def test_what_is_offered_changes_in_passes_only_and_to_what_there_is_only(host: WalkedHost) -> None:
    flat, nested = host.offers("flat"), host.offers("nested")
    assert (
        wrong(host, flat, flat)
        == wrong(host, flat, nested, "nested")
        == wrong(host, flat, flat, "nested")
        == []
    )
    assert wrong(host, flat, nested)
    assert wrong(host, flat, {**flat, ("", "VCPU"): 31.0}, "flat") == [
        "provider '' of host-a offers 31.0 of VCPU instead of [32.0]"
    ]
    host.layout = "nested"
    assert wrong(host, flat, flat, "nested", calm=True)


def test_what_is_gone_is_offered_only_while_somebody_has_it(host: WalkedHost) -> None:
    before = host.offers("flat")
    host.lost |= {"P0", "V31"}
    after = host.offers("flat")
    assert (CARD, GPU) not in after
    assert (after[OTHER_CARD, GPU], after[FUNCTIONS, VF]) == (1, 3)
    assert wrong(host, before, after, "flat", calm=True) == []
    assert wrong(host, before, before, "flat", calm=True)
    assert wrong(host, before, before, "flat", calm=True, held=("P0", "V31")) == []
