"""Guests that were on the host before its agent: made into records, whole or not at all."""

from dataclasses import replace

import pytest

from agent.model.devices import PciAddress
from agent.model.facts import Origin
from agent.model.finding import Drift
from agent.model.instance import Flavor
from agent.numa.host_policy import HostPolicy
from agent.tracker.domains import GuestImport
from agent.tracker.errors import ResourcesUnavailable
from agent.tracker.reconcile import ReconcileRules
from tests.support.tracking import F1, FN, FN4, Host, World, device, domain, guest, race, settled
from tests.unit.tracker.samples import pinned

GPU = "0000:01:00.0"


def outcomes(found: GuestImport) -> dict[str, str]:
    """What became of each guest, by name."""
    return {guest.guest.name: guest.outcome for guest in found.guests}


def reasons(found: GuestImport) -> dict[str, list[str]]:
    """Why guests were refused."""
    return {
        guest.guest.name: [refusal.reason for refusal in guest.refusals]
        for guest in found.guests
        if guest.refusals
    }


def inhabited(world: World, **fields: object) -> Host:
    """HN with a GPU, a guest that floats, one with cells of both kinds, one with the GPU, and one
    that wants a CPU of the second.
    """
    host = world.numa(**fields)
    host.devices = (device(host, GPU, numa_node=0),)
    floats = domain("floats", 2048, origin=Origin(F1, "p", "u"))
    cells = (
        pinned(0, 4, 5),
        replace(
            pinned(1, 12, 13),
            cell=replace(pinned(1, 12, 13).cell, dedicated=frozenset({2, 3})),
            pins={2: 12, 3: 13},
        ),
    )
    host.audit(
        domains=(
            floats,
            domain("pinned", 2048, cells=cells),
            domain("has-gpu", 512, 1, devices=(PciAddress.parse(GPU),), state="paused"),
            domain("odd", 1024, cells=(pinned(0, 5, 6),), state="stopped"),
        )
    )
    return host


def test_what_can_be_is_imported_and_the_rest_is_named(world: World) -> None:
    hn = inhabited(world)
    found = hn.tracker.import_guests(hn.node)
    assert outcomes(found) == {
        "floats": "imported",
        "pinned": "imported",
        "has-gpu": "imported",
        "odd": "refused",
    }
    taken = f"CPUs [5] are pinned already, by guest pinned ({guest('pinned')})"
    assert reasons(found) == {"odd": [f"cell 0: {taken}"]}
    # 512 of the host itself; 2048 of F1, 2048, 512; 1 of F1, 4, 1; the disk of F1.
    assert hn.usage == "5120/6/20480"
    settled(hn)
    (claim,) = hn.claims("pinned")
    assert (claim.state, claim.purpose, [sorted(cell.pinned_cpus) for cell in claim.cells]) == (
        "consumed",
        "instance",
        [[4, 5], [12, 13]],
    )
    (claim,) = hn.claims("has-gpu")
    assert hn.tracker.view(hn.node).devices[GPU].holder == claim.id
    assert {name: hn.instance(name).vm_state for name in ("floats", "pinned", "has-gpu")} == {
        "floats": "active",
        "pinned": "active",
        "has-gpu": "paused",
    }
    assert hn.changed == [hn.node]


def test_after_it_an_audit_finds_nothing_strange_but_what_stayed_out(world: World) -> None:
    hn = inhabited(world)
    assert {drift.consumer for drift in hn.audit().drift} == {
        guest(name) for name in ("floats", "pinned", "has-gpu", "odd")
    }
    hn.tracker.import_guests(hn.node)
    assert [(drift.kind, drift.consumer) for drift in hn.audit().drift] == [
        ("unknown-domain", guest("odd"))
    ]
    assert hn.usage == "5120/6/20480"


def test_nobody_else_gets_what_they_have(world: World) -> None:
    hn = inhabited(world)
    hn.tracker.import_guests(hn.node)
    hn.claim("n1", FN)
    hn.claim("n2", FN)
    assert {
        cpu
        for name in ("n1", "n2")
        for claim in hn.claims(name)[0].cells
        for cpu in claim.pinned_cpus
    } == {6, 7, 14, 15}
    with pytest.raises(ResourcesUnavailable):
        hn.claim("n3", FN)
    settled(hn)


def test_once_the_one_that_contradicts_has_gone_the_other_gets_in(world: World) -> None:
    hn = inhabited(world)
    hn.tracker.import_guests(hn.node)
    hn.update("pinned", vm_state="deleted", deleted=True)
    hn.audit(domains=tuple(guest for guest in hn.facts.domains or () if guest.name != "pinned"))
    assert outcomes(hn.tracker.import_guests(hn.node))["odd"] == "imported"
    assert hn.instance("odd").vm_state == "stopped"
    assert hn.audit().drift == ()


def test_64_sets_that_lack_their_cpus_are_drift(world: World) -> None:
    hn = inhabited(world)
    hn.tracker.import_guests(hn.node)

    def conflicts(cells: HostPolicy) -> list[Drift]:
        hn.cells = cells
        hn.restart()
        return [drift for drift in hn.audit(start=True).drift if drift.kind == "guest-conflict"]

    dedicated = frozenset({*range(5, 8), *range(12, 16)})
    (lost,) = conflicts(HostPolicy(hn.cells.shared, dedicated))
    assert lost.consumer == guest("pinned")
    assert f"lacks CPUs 4, to which guest {guest('pinned')} is pinned" in lost.detail
    unset, again = conflicts(HostPolicy(None, dedicated))
    assert again == lost
    assert all(name in unset.detail for name in (guest("floats"), guest("has-gpu")))


def test_an_orphan_that_counted_counts_as_a_guest_from_then_on(world: World) -> None:
    hn = inhabited(world, rules=ReconcileRules(count_orphans=True))
    # 2048 and no word of CPUs, 2048, 512 and one CPU, 1024.
    assert hn.usage == "6144/1/0"
    hn.tracker.import_guests(hn.node)
    # At once: 512; the guests; and 1024 that still nobody knows.
    assert hn.usage == "6144/6/20480"
    hn.audit()
    assert hn.usage == "6144/6/20480"


def test_an_orphan_that_counted_is_counted_once_when_its_room_is_claimed(world: World) -> None:
    host = world.plain("HA", rules=ReconcileRules(count_orphans=True))
    host.audit(domains=(domain("stray", 2048, 1),))
    assert host.usage == "2560/2/2048"
    host.claim("stray", F1)
    assert host.usage == "2560/2/22528"
    assert host.audit().drift == ()
    assert host.usage == "2560/2/22528"


def test_a_guest_that_the_records_have_elsewhere_stays_where_they_say(world: World) -> None:
    ha, hb = world.plain("HA"), world.plain("HB")
    ha.claim("i1", F1)
    ha.claim("i2", F1)
    ha.update("i2", vm_state="deleted", deleted=True)
    hb.audit(domains=(domain("i1", 2048, 1), domain("i2", 2048, 1)))
    found = hb.tracker.import_guests(hb.node)
    assert reasons(found) == {
        "i1": ["its instance is on host HA"],
        "i2": ["its instance is deleted"],
    }
    assert (hb.usage, hb.changed) == ("512/1/2048", [])


def test_a_guest_of_another_node_of_this_host_is_that_nodes(world: World) -> None:
    a = world.plain("HA")
    b = a.beside("node-b")
    a.claim("i1", F1)
    b.audit(domains=(domain("i1", 2048, 1), domain("i2", 1024, 1)))
    assert outcomes(b.tracker.import_guests(b.node)) == {"i1": "elsewhere", "i2": "imported"}


def test_a_guest_on_its_way_is_not_imported_on_top(world: World) -> None:
    ha, hb = world.plain("HA"), world.plain("HB")
    ha.claim("i1", F1)
    ha.update("i1", vm_state="active")
    hb.move("i1", "live-migration")
    for host in (ha, hb):
        host.audit(domains=(domain("i1", 2048, 1),))
        assert outcomes(host.tracker.import_guests(host.node)) == {"i1": "known"}
    assert hb.usage == "2560/2/22528"


def test_two_hosts_that_show_the_same_guest_do_not_both_get_it(world: World) -> None:
    hosts = [world.plain("HA"), world.plain("HB")]
    for host in hosts:
        host.audit(domains=(domain("i1", 2048, 1),))
    results = race(
        *(lambda host=host: outcomes(host.tracker.import_guests(host.node))["i1"] for host in hosts)
    )  # type: ignore[misc]
    assert sorted(map(str, results)) == ["imported", "refused"]
    assert sorted(host.usage for host in hosts) == ["2560/2/2048", "512/1/2048"]


def test_an_imported_guest_moves_with_its_cells(world: World) -> None:
    source, target = world.numa("HN"), world.numa("HM")
    source.audit(domains=(domain("i1", 1024, cells=(pinned(0, 4, 5),)),))
    source.tracker.import_guests(source.node)
    target.move("i1", "migration")
    (claim,) = [claim for claim in target.claims("i1") if claim.node == target.node]
    assert [cell.cell for cell in claim.cells] == [pinned(0, 4, 5).cell]
    assert len(claim.cells[0].pinned_cpus) == 2


def test_an_imported_guest_is_resized_from_the_flavor_that_its_maker_wrote_down(
    world: World,
) -> None:
    hn = world.numa()
    origin = Origin(FN, "p", "u")
    hn.audit(
        domains=(
            domain(
                "i1",
                4096,
                cells=(
                    replace(pinned(0, 4, 5), cell=replace(pinned(0, 4, 5).cell, memory_mib=4096)),
                ),
                origin=origin,
            ),
        )
    )
    hn.tracker.import_guests(hn.node)
    assert hn.usage == "4608/2/10240"
    hn.move("i1", "resize", FN4)
    assert hn.usage == "12800/6/20480"


def test_a_flavor_that_says_less_than_is_seen_does_not_hide_what_is_seen(ha: Host) -> None:
    ha.audit(
        domains=(
            domain("i1", 8192, 4, origin=Origin(Flavor("f", "F", 1, 1024, root_gb=1), "p", "u")),
        )
    )
    ha.tracker.import_guests(ha.node)
    assert ha.usage == "8704/5/3072"
