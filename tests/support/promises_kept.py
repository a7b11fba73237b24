"""Compares the records of a store with an account of what was promised."""

from agent.model.claim import Claim
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import NodeRecords
from agent.store.reading import RecordReader
from tests.support.promised import CELLS, PF, TYPES, VFS, Got, Promise
from tests.support.promises import Promises
from tests.support.tracking import guest, uuid_of


def kept(promises: Promises, reading: RecordReader) -> None:
    """Everything is in the records as it should be. What a claim has got is noted when it is seen
    for the first time.
    """
    for node in promises.hosts:
        if (records := reading.load(node)) is not None:
            _claims(promises, records)
            _inventory(promises, records)
            assert records.node.host == promises.hosts[node]
            assert records.node.failed_builds == promises.failed_builds.get(node, 0)
            assert records.node.deleted == (node in promises.removed)
            assert not records.damaged
    assert {one.id for one in reading.claims().records} == {
        uuid_of(one.id) for one in promises.promises.values() if one.open
    }
    assert {one.id for one in reading.claims(released=True).records} == {
        uuid_of(one) for one in promises.promises
    }
    _guests(promises, reading)
    _moves(promises, reading)


def _claims(promises: Promises, records: NodeRecords) -> None:
    node, found = records.node.uuid, {one.id: one for one in records.claims}
    expected = {uuid_of(one.id): one for one in promises.open_on(node)}
    assert found.keys() == expected.keys(), (
        [found[one] for one in found.keys() - expected.keys()],
        [expected[one] for one in expected.keys() - found.keys()],
    )
    for id, promise in expected.items():
        claim, got = found[id], got_of(found[id], records)
        assert (claim.purpose, claim.instance, claim.half, claim.state) == (
            promise.purpose,
            guest(promise.instance),
            promise.half,
            promise.state,
        )
        assert (claim.amounts, claim.migration) == (
            promise.amounts,
            uuid_of(promise.move) if promise.move else None,
        )
        if promise.got is None:
            _first_seen(promises, promise, got)
        else:
            assert got == promise.got
    _nothing_twice(promises, node)


def got_of(claim: Claim, records: NodeRecords) -> Got:
    """What a claim has."""
    return Got(
        frozenset(cpu for placed in claim.cells for cpu in placed.pinned_cpus),
        frozenset(one.address for one in records.devices if one.holder == claim.id),
        frozenset(one.identifier for one in records.units if one.holder == claim.id),
    )


def _first_seen(promises: Promises, promise: Promise, got: Got) -> None:
    """A claim has what it asked for, of what there is."""
    assert len(got.cpus) == promise.cpus
    assert not got.cpus or any(got.cpus <= cell for cell in CELLS)
    assert sorted(TYPES[one] for one in got.devices) == sorted(promise.devices)
    assert len(got.units) == promise.units
    assert got.devices <= promises.devices[promise.node]
    assert got.units <= promises.units[promise.node]
    promises.saw(promise, got)


def _nothing_twice(promises: Promises, node: ProviderUuid) -> None:
    for what in ("cpus", "devices", "units"):
        each = [
            one
            for promise in promises.open_on(node)
            if promise.got
            for one in getattr(promise.got, what)
        ]
        assert len(each) == len(set(each))
    devices = promises.held(node, "devices")
    assert PF not in devices or not devices & set(VFS)


def _inventory(promises: Promises, records: NodeRecords) -> None:
    """A row for what is there, and for what is gone and held."""
    node = records.node.uuid
    for rows, present, held in (
        (
            {one.address: one.present for one in records.devices},
            promises.devices,
            promises.held(node, "devices"),
        ),
        (
            {one.identifier: one.present for one in records.units},
            promises.units,
            promises.held(node, "units"),
        ),
    ):
        assert rows == {
            one: one in present.get(node, ()) for one in present.get(node, frozenset()) | held
        }
    in_use = {
        device: promise.attached
        for promise in promises.open_on(node)
        if promise.got
        for device in promise.got.devices
    }
    states = {None: "available", True: "allocated", False: "claimed"}
    assert {one.address: one.state for one in records.devices} == {
        one.address: states[in_use.get(one.address)] for one in records.devices
    }


def _guests(promises: Promises, reading: RecordReader) -> None:
    found = {one.uuid: one for one in reading.instances().records}
    assert found.keys() == {guest(name) for name in promises.guests}
    for name, expected in promises.guests.items():
        one = found[guest(name)]
        assert (one.host, one.node, one.vm_state, one.task_state) == (
            expected.host,
            expected.node,
            expected.vm_state,
            expected.task_state,
        )
        assert (one.flavor, one.old_flavor, one.new_flavor, one.deleted) == (
            expected.flavor,
            expected.old,
            expected.new,
            expected.deleted,
        )


def _moves(promises: Promises, reading: RecordReader) -> None:
    found = {one.uuid: one for one in reading.migrations().records}
    assert found.keys() == {ConsumerUuid(uuid_of(id)) for id in promises.moves}
    for id, expected in promises.moves.items():
        one = found[ConsumerUuid(uuid_of(id))]
        assert (one.instance, one.type, one.status) == (
            guest(expected.instance),
            expected.type,
            expected.status,
        )
        assert (one.source_node, one.source_compute, one.dest_node) == (
            expected.source,
            expected.source_host,
            expected.dest,
        )
