"""One host with a fault of each kind that an observer finds, all at once: each is told with what
mends it, and nothing else is told.
"""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.functional.nova.watched_host import ALLOCATION, GPU, HELD, ROOT, Watched, a_guest, host
from tests.support.agent import new_uuid
from tests.support.http_placement import HttpPlacement
from tests.support.placement import PROJECT, USER
from tests.support.tracking import guest

CARDS = (GPU, "0000:5e:00.0", "0000:86:00.0", "0000:af:00.0")
# A trait that the host does not have.
EXTRA = "COMPUTE_RESCUE_BFV"
GPU_CLASS = "CUSTOM_PCI_10DE_1DB4"
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "DEFAULT": {"cpu_allocation_ratio": 8.0, "reserved_host_memory_mb": 512},
    "compute": {"cpu_shared_set": "0-3,8-11", "cpu_dedicated_set": "4-7,12-15"},
    "pci": {"device_spec": '{"vendor_id": "10de"}', "report_in_placement": True},
}
PINNED = {"PCPU": 2, "MEMORY_MB": 1024}
LARGER = {**HELD, "MEMORY_MB": 3072}
PAGED = {"VCPU": 1, "MEMORY_MB": 1536}
GOOD, LOST, OTHER, ASTRAY, TWICE, BOTH = (
    guest(name) for name in ("good", "lost", "other", "astray", "twice", "both")
)
# Of two guests that have the same, the one with the lower uuid is taken to have it.
FIRST_CPUS, SECOND_CPUS = sorted((guest("cpus a"), guest("cpus b")))
FIRST_CARD, SECOND_CARD = sorted((guest("card a"), guest("card b")))
OUTSIDE = guest("outside")
FIRST_PAGES, SECOND_PAGES = sorted((guest("pages a"), guest("pages b")))


@pytest.fixture
def watched(tmp_path: Path, http_placement: HttpPlacement) -> Watched:
    return Watched(tmp_path, http_placement)


def big_host(*guests: Mapping[str, Any]) -> dict[str, Any]:
    found = host(*guests)
    (card,) = found["pci"]
    for cell in found["cells"]:
        cell["pages"] = [{"size_kib": 2048, "total": 1024}]
    cards = [{**card, "address": address} for address in CARDS]
    return {**found, "pci": cards, "capabilities": {EXTRA: False}}


def pinned(uuid: str, name: str, *cpus: int) -> dict[str, Any]:
    pins = {str(number): cpu for number, cpu in enumerate(cpus)}
    cells = [{"host_cell": 0, "memory_mib": 1024, "dedicated": "0-1", "pins": pins}]
    return {"uuid": uuid, "name": name, "cells": cells}


def paged(uuid: str, name: str) -> dict[str, Any]:
    cells = [{"host_cell": 1, "memory_mib": 1536, "shared": "0", "page_size_kib": 2048}]
    return {"uuid": uuid, "name": name, "cells": cells}


def larger(one: dict[str, Any]) -> dict[str, Any]:
    flavor = {**one["origin"]["flavor"], "memory_mb": 3072}
    return {**one, "memory_mib": 3072, "origin": {**one["origin"], "flavor": flavor}}


def guests() -> list[dict[str, Any]]:
    return [
        a_guest(GOOD, "good", devices=[CARDS[0]]),
        a_guest(LOST, "lost"),
        a_guest(OTHER, "other"),
        a_guest(ASTRAY, "astray", devices=[CARDS[1]]),
        larger(a_guest(TWICE, "twice")),
        a_guest(BOTH, "both"),
        pinned(FIRST_CPUS, "first", 4, 5),
        pinned(SECOND_CPUS, "second", 5, 6),
        a_guest(FIRST_CARD, "third", devices=[CARDS[3]]),
        a_guest(SECOND_CARD, "fourth", devices=[CARDS[3]]),
        pinned(OUTSIDE, "outside", 2, 7),
        paged(FIRST_PAGES, "fifth"),
        paged(SECOND_PAGES, "sixth"),
    ]


class Faults:
    """The faults of one host in Placement."""

    def __init__(self, watched: Watched) -> None:
        self.other = watched.other
        self.cards = [watched.provider(address.upper()) for address in CARDS]
        self.right = copy.deepcopy(self.other.inventory(ROOT))
        self.elsewhere = self.other.create_provider("node-b")
        self.migration, self.evacuated, self.aborted = new_uuid(), new_uuid(), new_uuid()

    def plant(self) -> None:
        self._inventories()
        self._of_guests()
        self._of_others()

    def _inventories(self) -> None:
        wrong = copy.deepcopy(self.right)
        wrong["VCPU"]["allocation_ratio"] = 16.0
        wrong["MEMORY_MB"]["reserved"] = 0
        wrong["DISK_GB"]["total"] -= 1
        self.other.set_inventory(ROOT, wrong)
        self.other.set_traits(ROOT, {*self.other.traits(ROOT), EXTRA} - {"COMPUTE_NODE"})
        self.other.set_inventory(self.cards[2], {GPU_CLASS: 2})
        self.other.set_inventory(self.elsewhere, {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100})

    def _of_guests(self) -> None:
        claim = self.other.claim
        claim({ROOT: HELD, self.cards[0]: {GPU_CLASS: 1}}, GOOD)
        claim({ROOT: {**HELD, "MEMORY_MB": 4096}}, OTHER)
        claim({ROOT: HELD, self.cards[2]: {GPU_CLASS: 1}}, ASTRAY)
        claim({ROOT: LARGER}, TWICE)
        claim({ROOT: HELD, self.elsewhere: HELD}, BOTH)
        for uuid in (FIRST_CPUS, SECOND_CPUS, OUTSIDE):
            claim({ROOT: PINNED}, uuid)
        claim({ROOT: HELD, self.cards[3]: {GPU_CLASS: 1}}, FIRST_CARD)
        claim({ROOT: HELD}, SECOND_CARD)
        for uuid in (FIRST_PAGES, SECOND_PAGES):
            claim({ROOT: PAGED}, uuid)

    def _of_others(self) -> None:
        self.other.claim({ROOT: LARGER}, self.migration)
        self.other.claim(
            {ROOT: {"VCPU": 2, "MEMORY_MB": 512}, self.elsewhere: HELD}, self.evacuated
        )
        self.other.claim({ROOT: {"VCPU": 2, "MEMORY_MB": 1024}}, self.aborted)


def changed_fields(operation: Any) -> dict[tuple[str, str], tuple[float, float]]:
    """Each field that an inventory has otherwise than it should: what it has and should have."""
    return {
        (name, field): (record[field], operation["after"][name][field])
        for name, record in operation["before"].items()
        for field in record
        if record[field] != operation["after"][name][field]
    }


def remedies(faults: Faults) -> dict[tuple[str, str | None], str]:
    """The end of the remedy of each fault of guests and allocations."""
    allocation, heal = ALLOCATION, "placement heal_allocations"
    owner = f"--project-id {PROJECT} --user-id {USER}"
    right = "".join(
        f" --allocation rp={uuid},{amounts}"
        for uuid, amounts in sorted(
            {ROOT: "DISK_GB=20,MEMORY_MB=2048,VCPU=1", faults.cards[1]: f"{GPU_CLASS}=1"}.items()
        )
    )
    return {
        ("missing-allocation", LOST): f"nova-manage {heal} --instance {LOST}",
        ("allocation-mismatch", OTHER): f"nova-manage {heal} --instance {OTHER} --force",
        ("allocation-mismatch", ASTRAY): f" && {allocation} set {owner}{right} {ASTRAY}",
        (
            "allocation-mismatch",
            BOTH,
        ): f" && {allocation} unset --provider {faults.elsewhere} {BOTH}",
        ("orphaned-allocation", faults.migration): f" && {allocation} delete {faults.migration}",
        ("orphaned-allocation", faults.aborted): f" && {allocation} delete {faults.aborted}",
        ("orphaned-allocation", faults.evacuated): (
            f" && {allocation} unset --provider {ROOT} {faults.evacuated}"
        ),
        ("guest-conflict", SECOND_CPUS): f": openstack server migrate {SECOND_CPUS}",
        ("guest-conflict", SECOND_CARD): f": openstack server migrate {SECOND_CARD}",
        ("guest-conflict", OUTSIDE): f": openstack server migrate {OUTSIDE}",
        ("overcommitted", None): "/node1/hugepages/hugepages-2048kB/nr_hugepages",
    }


def details(faults: Faults) -> dict[str | None, str]:
    """What the message of some faults says."""
    return {
        OTHER: "holds MEMORY_MB 4096 instead of 2048",
        ASTRAY: f"1 {GPU_CLASS} of node-a_{CARDS[2].upper()} instead of 0",
        BOTH: "its allocation is on this node and on another one",
        faults.migration: f"as much as guest twice ({TWICE})",
        faults.evacuated: "here and on another node",
        SECOND_CPUS: f"CPUs [5] are pinned already, by guest first ({FIRST_CPUS})",
        SECOND_CARD: f"it has device {CARDS[3]}, which belongs to guest third ({FIRST_CARD})",
        OUTSIDE: "cpu_dedicated_set lacks CPUs 2",
        None: "cell 1: 1536 pages of 2048 KiB are promised, of 1024",
    }


def test_of_a_fault_of_each_kind_every_one_is_told_and_nothing_else(watched: Watched) -> None:
    watched.as_nova_has_it(big_host(), **OPTIONS)
    watched.is_host(big_host(*guests()), **OPTIONS)
    faults = Faults(watched)
    faults.plant()
    node = watched.observe()
    found = {(one["op"], one["provider"]["uuid"]): one for one in node["operations"]}
    assert found.keys() == {
        ("set-inventory", ROOT),
        ("set-inventory", faults.cards[2]),
        ("set-traits", ROOT),
    }
    assert changed_fields(found["set-inventory", ROOT]) == {
        ("DISK_GB", "total"): (499, 500),
        ("MEMORY_MB", "reserved"): (0, 512),
        ("VCPU", "allocation_ratio"): (16.0, 8.0),
    }
    assert changed_fields(found["set-inventory", faults.cards[2]])[GPU_CLASS, "total"] == (2, 1)
    traits = found["set-traits", ROOT]
    assert set(traits["before"]) ^ set(traits["after"]) == {EXTRA, "COMPUTE_NODE"}
    drift = {(one["kind"], one.get("consumer")): one for one in node["drift"]}
    assert len(drift) == len(node["drift"])
    expected = remedies(faults)
    assert drift.keys() == expected.keys()
    for key, remedy in expected.items():
        assert drift[key]["remedy"].endswith(remedy)
        assert drift[key]["severity"] == "warning"
    for consumer, text in details(faults).items():
        assert any(
            text in one["detail"] for one in drift.values() if one.get("consumer") == consumer
        )
    assert (node["errors"], node["state"]) == ([], "pending")


def test_of_the_same_host_without_faults_nothing_is_told(watched: Watched) -> None:
    watched.as_nova_has_it(big_host(), **OPTIONS)
    right = {GOOD, LOST, OTHER, TWICE, BOTH, FIRST_CPUS, FIRST_PAGES}
    watched.is_host(big_host(*(one for one in guests() if one["uuid"] in right)), **OPTIONS)
    card = watched.provider(CARDS[0].upper())
    watched.other.claim({ROOT: HELD, card: {GPU_CLASS: 1}}, GOOD)
    for uuid in (LOST, OTHER, BOTH):
        watched.other.claim({ROOT: HELD}, uuid)
    watched.other.claim({ROOT: LARGER}, TWICE)
    watched.other.claim({ROOT: PINNED}, FIRST_CPUS)
    watched.other.claim({ROOT: PAGED}, FIRST_PAGES)
    node = watched.observe()
    assert (node["operations"], node["drift"], node["errors"]) == ([], [], [])
