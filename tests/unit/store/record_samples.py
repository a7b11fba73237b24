"""Records for the tests of the store: ordinary ones, and any that there can be."""

import uuid
from dataclasses import replace
from typing import Any, get_args

from hypothesis import strategies as st

from agent.model.devices import DeviceRecord, DeviceType, MdevShare, Serves, UnitRecord
from agent.model.instance import (
    Amounts,
    Flavor,
    GuestCell,
    Instance,
    PlacedCell,
    TaskState,
    VmState,
)
from agent.model.names import ConsumerUuid, ProviderUuid
from agent.model.node_records import (
    Claim,
    ClaimState,
    ComputeNode,
    Half,
    Lease,
    Migration,
    MigrationStatus,
    MigrationType,
    Purpose,
    RecordChanges,
)
from agent.store.records import Records

SMALL = Flavor("f1", "small", 1, 2048, root_gb=20, extra_specs={"hw:cpu_policy": "dedicated"})


def new_uuid() -> Any:
    return str(uuid.uuid4())


def node(name: str = "n1", host: str = "h1", **fields: Any) -> ComputeNode:
    return ComputeNode(**{"uuid": ProviderUuid(new_uuid()), "host": host, "name": name, **fields})


def instance(**fields: Any) -> Instance:
    return Instance(
        **{"uuid": new_uuid(), "project_id": "p", "user_id": "u", "flavor": SMALL, **fields}
    )


def claim(of: Instance, on: ComputeNode, **fields: Any) -> Claim:
    return Claim(
        **{
            "id": new_uuid(),
            "purpose": "instance",
            "instance": of.uuid,
            "node": on.uuid,
            "amounts": Amounts(2048, 1, 20480),
            **fields,
        }
    )


def migration(of: Instance, **fields: Any) -> Migration:
    return Migration(
        **{
            "uuid": new_uuid(),
            "instance": of.uuid,
            "type": "resize",
            "status": "migrating",
            "source_compute": "h1",
            "source_node": None,
            **fields,
        }
    )


def device(on: ComputeNode, address: str = "0000:00:01.0", **fields: Any) -> DeviceRecord:
    return DeviceRecord(
        **{"node": on.uuid, "address": address, "vendor_id": "8086", "product_id": "1572", **fields}
    )


def unit(on: ComputeNode, identifier: str = "ns1", **fields: Any) -> UnitRecord:
    return UnitRecord(
        **{
            "node": on.uuid,
            "provider": on.uuid,
            "resource_class": "CUSTOM_PMEM",
            "identifier": identifier,
            **fields,
        }
    )


def one_of_each() -> RecordChanges:
    here, guest = node(), instance()
    return RecordChanges(
        (here,),
        (guest,),
        (migration(guest),),
        (claim(guest, here),),
        (device(here),),
        (unit(here),),
        (Lease(node=here.uuid, host="h1", expires_at=1.0),),
    )


def write(records: Records, changes: RecordChanges) -> None:
    with records.transaction(sorted(changes.touched)) as transaction:
        transaction.write(changes)


def grown(record: Any) -> Any:
    """The record as it is once written."""
    return replace(record, version=record.version + 1)


# --- any that there can be ------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
mappings = st.dictionaries(texts, texts, max_size=3)
amounts = st.integers(0, 2**63 - 1)
times = st.floats(0, 1e12)
cpus = st.frozensets(st.integers(0, 300), max_size=5)
uuids = st.builds(new_uuid)
flavors = st.builds(
    Flavor,
    id=texts,
    name=texts,
    vcpus=amounts,
    memory_mb=amounts,
    root_gb=amounts,
    ephemeral_gb=amounts,
    swap_mb=amounts,
    extra_specs=mappings,
)
cells = st.builds(
    PlacedCell,
    st.builds(GuestCell, cpus, cpus, amounts),
    st.integers(0, 99),
    st.none() | amounts,
    st.dictionaries(st.integers(0, 9), st.integers(0, 99)),
    cpus,
)


def _words(literal: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(literal))


def _optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def nodes(uuid_: str) -> st.SearchStrategy[ComputeNode]:
    ratio = st.floats(0, 1e6)
    return st.builds(
        ComputeNode,
        uuid=st.just(ProviderUuid(uuid_)),
        host=st.builds(lambda text: text + new_uuid(), texts),
        name=texts,
        host_ip=_optional(texts),
        vcpus=_optional(amounts),
        memory_mb=_optional(amounts),
        local_gb=_optional(amounts),
        hypervisor_type=texts,
        hypervisor_version=amounts,
        cpu_info=texts,
        cpu_allocation_ratio=ratio,
        ram_allocation_ratio=ratio,
        disk_allocation_ratio=ratio,
        failed_builds=st.integers(0, 2**31 - 1),
        dirty=st.booleans(),
        deleted=st.booleans(),
        created_at=times,
        updated_at=times,
        version=st.just(0),
    )


def instances(uuid_: str, on: str) -> st.SearchStrategy[Instance]:
    return st.builds(
        Instance,
        uuid=st.just(ConsumerUuid(uuid_)),
        project_id=texts,
        user_id=texts,
        flavor=flavors,
        os_type=_optional(texts),
        host=_optional(texts),
        node=st.just(ProviderUuid(on)),
        launched_on=_optional(texts),
        vm_state=_words(VmState),
        task_state=_optional(_words(TaskState)),
        old_flavor=_optional(flavors),
        new_flavor=_optional(flavors),
        image_properties=mappings,
        volume_backed=st.booleans(),
        hidden=st.booleans(),
        deleted=st.booleans(),
        created_at=times,
        updated_at=times,
        version=st.just(0),
    )


def migrations(uuid_: str, of: str) -> st.SearchStrategy[Migration]:
    return st.builds(
        Migration,
        uuid=st.just(ConsumerUuid(uuid_)),
        instance=st.just(ConsumerUuid(of)),
        type=_words(MigrationType),
        status=_words(MigrationStatus),
        source_compute=_optional(texts),
        source_node=_optional(uuids),
        dest_compute=_optional(texts),
        dest_node=_optional(uuids),
        dest_host=_optional(texts),
        old_flavor_id=_optional(texts),
        new_flavor_id=_optional(texts),
        hidden=st.booleans(),
        cross_cell_move=st.booleans(),
        cleared=st.booleans(),
        clearing=st.none() | st.integers(0, 99),
        created_at=times,
        updated_at=times,
        version=st.just(0),
    )


mdevs = st.builds(
    MdevShare,
    st.just(ProviderUuid(new_uuid())),
    st.just("VGPU"),
    st.integers(1, 99),
    _optional(st.just("0000:06:00.0")),
    _optional(st.just("nvidia-35")),
)


def claims(id_: str, of: str, on: str, move: str) -> st.SearchStrategy[Claim]:
    return st.builds(
        Claim,
        id=st.just(id_),
        purpose=_words(Purpose),
        instance=st.just(ConsumerUuid(of)),
        node=st.just(ProviderUuid(on)),
        half=_words(Half),
        state=_words(ClaimState),
        amounts=st.builds(Amounts, amounts, amounts, amounts),
        cells=st.lists(cells, max_size=2).map(tuple),
        mdevs=st.lists(mdevs, max_size=2).map(tuple),
        flavor_id=_optional(texts),
        migration=st.sampled_from([None, ConsumerUuid(move)]),
        origin=st.sampled_from([None, ConsumerUuid(move)]),
        digest=st.sampled_from(["", "ab" * 32]),
        created_at=times,
        updated_at=times,
        version=st.just(0),
    )


def devices(on: str, held_by: str) -> st.SearchStrategy[DeviceRecord]:
    return st.builds(
        lambda held, **fields: DeviceRecord(state=held[0], holder=held[1], **fields),
        st.sampled_from([("available", None), ("claimed", held_by), ("allocated", held_by)]),
        node=st.just(ProviderUuid(on)),
        address=st.just("0000:00:1f.7"),
        vendor_id=st.just("8086"),
        product_id=st.just("1572"),
        type=_words(DeviceType),
        parent=st.sampled_from([None, "00ff0000:00:1f.0"]),
        numa_node=_optional(st.integers(0, 99)),
        tags=mappings,
        serves=_words(Serves),
        request=_optional(texts),
        present=st.booleans(),
        version=st.just(0),
    )


def units(on: str, held_by: str, identifier: str) -> st.SearchStrategy[UnitRecord]:
    return st.builds(
        UnitRecord,
        node=st.just(ProviderUuid(on)),
        provider=st.just(ProviderUuid(on)),
        resource_class=st.just("CUSTOM_PMEM"),
        identifier=st.just(identifier),
        metadata=mappings,
        holder=st.sampled_from([None, held_by]),
        present=st.booleans(),
        version=st.just(0),
    )


@st.composite
def two_of_each(draw: st.DrawFn) -> tuple[RecordChanges, RecordChanges]:
    """One record of every kind that belong together, and what they are changed to."""
    on, of, move, held_by, identifier = new_uuid(), new_uuid(), new_uuid(), new_uuid(), draw(texts)
    leases = st.builds(Lease, node=st.just(ProviderUuid(on)), host=texts, expires_at=times)
    kinds = [
        nodes(on),
        instances(of, on),
        migrations(move, of),
        claims(held_by, of, on, move),
        devices(on, held_by),
        units(on, held_by, identifier),
        leases,
    ]
    return tuple(RecordChanges(*((draw(kind),) for kind in kinds)) for _ in range(2))  # type: ignore[return-value]
