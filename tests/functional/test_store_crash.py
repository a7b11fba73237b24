"""The store under kill -9 and on a full disk: what was saved stays, what was not is not there in
part.
"""

import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.errors import StoreError
from agent.model.mirror import Journal, Ownership
from agent.model.names import ProviderUuid
from agent.model.node_records import RecordChanges
from agent.store.backup import back_up
from agent.store.engines import locate
from agent.store.identity import establish
from agent.store.lock import RunLock
from agent.store.records import Records
from agent.store.store import open_read_only, open_store
from tests.support.store_place import Place
from tests.unit.store.record_samples import claim, device, grown, instance, node, unit, write
from tests.unit.store.trees import (
    ENDPOINT,
    ROOT,
    contents,
    folder_state,
    names_in,
    node_view,
    uuid_of,
)

if TYPE_CHECKING:
    from tests.support.postgresql import PostgreSQL

pytestmark = pytest.mark.long

WRITER = """
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from agent.model.mirror import Ownership
from agent.store.identity import establish
from agent.store.lock import RunLock
from agent.store.store import open_store
from tests.unit.store.trees import ENDPOINT, ROOT, node_view, uuid_of

folder = Path(sys.argv[1])
with RunLock(folder), open_store(folder) as store:
    print("identity", establish(folder, [], "host", store).uuid, flush=True)
    old = store.view(ENDPOINT, ROOT)
    start = old.tree.provider(ROOT).generation if old else 0
    for generation in count(start + 1):
        new = node_view(cells=generation % 50, generation=generation)
        store.save_view(ENDPOINT, ROOT, old, new)
        journal = replace(store.journal(ROOT), providers={uuid_of(f"{generation} {n}"): Ownership() for n in range(5)})
        store.save_journal(ROOT, journal)
        print("saved", generation, flush=True)
        old = new
"""


# One operation after the other: a guest gets a device and a unit, or the eldest one gives all back.
CLAIMER = """
import sys
from collections import deque
from dataclasses import replace
from itertools import count
from pathlib import Path
from agent.model.node_records import RecordChanges
from agent.store.records import Records
from agent.store.store import open_store
from tests.unit.store.record_samples import claim, instance

node = sys.argv[3]
with open_store(Path(sys.argv[1]), sys.argv[2] or None) as store:
    records = Records(store)
    for turn in count():
        guest = instance(host="h1", node=node)
        with records.transaction([node]) as transaction:
            found = transaction.load(node)
            free = next((one for one in found.devices if one.holder is None), None)
            if free is not None:
                made = claim(guest, found.node, created_at=float(found.node.version))
                space = next(one for one in found.units if one.holder is None)
                transaction.write(RecordChanges(
                    nodes=(replace(found.node, failed_builds=found.node.failed_builds + 1),), instances=(guest,), claims=(made,),
                    devices=(replace(free, holder=made.id, state="claimed"),), units=(replace(space, holder=made.id),),
                ))
            else:
                over = found.claims[0]
                devices, units = transaction.held_by([over.id])
                transaction.write(RecordChanges(
                    nodes=(replace(found.node, failed_builds=found.node.failed_builds + 1),), claims=(replace(over, state="released"),),
                    devices=tuple(replace(one, holder=None, state="available") for one in devices),
                    units=tuple(replace(one, holder=None) for one in units),
                ))
        print("done", found.node.failed_builds + 1, flush=True)
"""


@contextmanager
def writing(
    folder: Path, program: str = WRITER, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """A process that saves until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder), *arguments], stdout=subprocess.PIPE, text=True
    ) as writer:
        yield writer
        writer.kill()
    assert writer.returncode == -9


def _killed_at_its_saves(folder: Path) -> list[str]:
    """What a writer said until it was killed, some time after its first save."""
    said: list[str] = []
    with writing(folder) as writer:
        assert writer.stdout is not None
        while sum(line.startswith("saved") for line in said) < 2:
            said.append(writer.stdout.readline())
        time.sleep(random.random() * 0.3)
        writer.kill()
        said += writer.stdout.readlines()
    return said


def _check_records(place: Place, node: ProviderUuid) -> int:
    """Each operation is there whole or not at all. How many there were."""
    with place.open() as store, Records(store).reading() as reading:
        loaded = reading.load(node)
    assert loaded is not None
    operations = loaded.node.failed_builds
    assert loaded.node.version == operations + 1
    held = {one.id for one in loaded.claims}
    assert len(held) == (operations if operations < 4 else 4 - operations % 2)
    for rows in (loaded.devices, loaded.units):
        assert {one.holder for one in rows} - {None} == held
        assert len(rows) == 4
    return operations


def _node_with_devices_and_units(place: Place) -> ProviderUuid:
    here = node()
    devices, units = (
        (device(here, f"0000:00:0{n}.0") for n in range(4)),
        (unit(here, f"ns{n}") for n in range(4)),
    )
    with place.open() as store:
        write(
            Records(store), RecordChanges(nodes=(here,), devices=tuple(devices), units=tuple(units))
        )
    return here.uuid


def test_after_kill_9_every_operation_that_was_told_is_there_and_each_is_whole(
    place: Place,
) -> None:
    here, done = _node_with_devices_and_units(place), 0
    for _ in range(6):
        with writing(place.folder, CLAIMER, place.url or "", here) as claimer:
            assert claimer.stdout is not None
            said = [claimer.stdout.readline() for _ in range(3)]
            time.sleep(random.random() * 0.2)
            claimer.kill()
            said += claimer.stdout.readlines()
        last = max([done, *(int(line.split()[1]) for line in said if line.endswith("\n"))])
        done = _check_records(place, here)
        assert last <= done <= last + 1
    assert done > 12


def test_after_its_server_was_killed_every_operation_that_was_told_is_there_and_each_is_whole(
    postgresql: "PostgreSQL", postgresql_place: Place
) -> None:
    here, done = _node_with_devices_and_units(postgresql_place), 0
    command = [
        sys.executable,
        "-c",
        CLAIMER,
        str(postgresql_place.folder),
        str(postgresql_place.url),
        here,
    ]
    for _ in range(3):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as claimer:
            assert claimer.stdout is not None
            said = [claimer.stdout.readline() for _ in range(3)]
            time.sleep(random.random() * 0.2)
            postgresql.kill()
            rest, errors = claimer.communicate(timeout=120)
        assert "agent.errors.StoreError: [store] connection" in errors
        postgresql.start()
        last = max([done, *(int(line.split()[1]) for line in [*said, *rest.splitlines()])])
        done = _check_records(postgresql_place, here)
        assert last <= done <= last + 1
    assert done > 6


def _seconds_to_identity(folder: Path) -> float:
    begun = time.monotonic()
    with writing(folder) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline().startswith("identity")
        return time.monotonic() - begun


def test_after_kill_9_the_last_save_is_there_and_whole(tmp_path: Path) -> None:
    folder, identities, saves = tmp_path / "state", set(), 0
    for attempt in range(6):
        said = _killed_at_its_saves(folder)
        identities |= {line for line in said if line.startswith("identity")}
        last = max(
            [
                saves,
                *(
                    int(line.split()[1])
                    for line in said
                    if line.startswith("saved") and line.endswith("\n")
                ),
            ]
        )
        opening = open_store if attempt % 2 else open_read_only
        with opening(folder) as store:
            view, journal = store.view(ENDPOINT, ROOT), store.journal(ROOT)
        assert view is not None
        found = view.tree.provider(ROOT).generation
        assert found is not None
        assert last <= found <= last + 1
        assert contents(view) == contents(node_view(cells=found % 50, generation=found))
        assert journal in [
            Journal({uuid_of(f"{kept} {n}"): Ownership() for n in range(5)})
            for kept in (found, found - 1)
        ]
        saves = found
    assert saves > 6
    assert len(identities) == 1


def test_after_kill_9_at_any_moment_of_its_birth_a_store_opens(tmp_path: Path) -> None:
    whole = _seconds_to_identity(tmp_path / "whole")
    for attempt in range(12):
        folder = tmp_path / str(attempt)
        with writing(folder):
            time.sleep(whole * (0.5 + attempt * 0.05))
        with RunLock(folder), open_store(folder) as store:
            identity = establish(folder, [], "host", store)
            assert (folder / "compute_id.proposed").read_text() == f"{identity.uuid}\n"
        assert {"compute_id.proposed", "database", "lock"} == {
            name for name in names_in(folder) if not name.startswith(".compute_id.")
        }


RESTORER = """
import sys
from itertools import cycle
from pathlib import Path
from agent.store.backup import restore
from agent.store.engines import locate
from tests.unit.store.trees import ENDPOINT, ROOT, node_view
from agent.store.store import open_store

folder = Path(sys.argv[1])
for number in cycle([1, 2]):
    restore(locate(folder, None), folder / f"backup-{number}", lambda store: None, dry_run=False)
    print("restored", flush=True)
    # A kill here leaves a log that is not the next backup's.
    with open_store(folder) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view(cells=20, generation=number + 2))
"""


def test_after_kill_9_at_any_moment_of_a_restore_one_of_the_stores_is_there_and_whole(
    tmp_path: Path,
) -> None:
    for number in (1, 2):
        with open_store(tmp_path) as store:
            store.save_view(ENDPOINT, ROOT, None, node_view(cells=20, generation=number))
        back_up(tmp_path, locate(tmp_path, None), tmp_path / f"backup-{number}")
    for _ in range(12):
        with writing(tmp_path, RESTORER) as restorer:
            assert restorer.stdout is not None
            assert restorer.stdout.readline() == "restored\n"
            time.sleep(random.random() * 0.1)
        with open_store(tmp_path) as store:
            view = store.view(ENDPOINT, ROOT)
        assert view is not None
        generation = view.tree.provider(ROOT).generation
        assert generation in (1, 2, 3, 4)
        assert contents(view) == contents(node_view(cells=20, generation=generation))


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process grows beyond ``size`` bytes, much as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_reported_and_leaves_what_was_saved(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.save_view(ENDPOINT, ROOT, None, node_view())
        wal = (tmp_path / "database/store.sqlite-wal").stat().st_size
        for grown in (0, 100, 5000, 60000):
            with file_size_limit(wal + grown), pytest.raises(StoreError) as refused:
                store.save_view(ENDPOINT, ROOT, node_view(), node_view(cells=500, generation=9))
            assert str(tmp_path / "database/store.sqlite") in refused.value.message
            assert refused.value.message.startswith("[store] path")
            assert "make room on its file system" in refused.value.remedy
            assert contents(store.view(ENDPOINT, ROOT)) == contents(node_view())
        store.save_view(ENDPOINT, ROOT, node_view(), node_view(cells=500, generation=9))
    with open_store(tmp_path) as store:
        assert contents(store.view(ENDPOINT, ROOT)) == contents(node_view(cells=500, generation=9))


def test_records_that_find_no_room_are_not_there_in_part_and_can_be_written_later(
    tmp_path: Path,
) -> None:
    here, guests = node(), [instance() for _ in range(200)]
    wanted = RecordChanges(
        nodes=(grown(here),),
        instances=tuple(guests),
        claims=tuple(claim(one, here) for one in guests),
    )
    with open_store(tmp_path) as store:
        records = Records(store)
        write(records, RecordChanges(nodes=(here,)))
        wal = (tmp_path / "database/store.sqlite-wal").stat().st_size
        for more in (0, 100, 30000):
            with file_size_limit(wal + more), pytest.raises(StoreError) as refused:
                write(records, wanted)
            assert "make room on its file system" in refused.value.remedy
            with records.reading() as reading:
                assert reading.node_versions([here.uuid]) == {here.uuid: 1}
                assert reading.instances().records == ()
        write(records, wanted)
    with open_store(tmp_path) as store, Records(store).reading() as reading:
        loaded = reading.load(here.uuid)
    assert loaded is not None
    assert (loaded.node.version, len(loaded.claims)) == (2, 200)


def test_a_store_that_finds_no_room_at_its_birth_is_born_later(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    for size in (0, 4096, 20000):
        with file_size_limit(size), pytest.raises(StoreError) as refused:
            open_store(folder)
        assert "make room on its file system" in refused.value.remedy
        assert not (folder / "database/store.sqlite").exists()
    open_store(folder).close()
    assert names_in(folder / "database") == ["store.sqlite"]


def test_an_identity_that_finds_no_room_is_not_there_in_part(tmp_path: Path) -> None:
    with open_store(tmp_path / "database") as store:
        assert store.identity("host") is None
        with file_size_limit(10), pytest.raises(StoreError, match="File too large"):
            establish(tmp_path / "state", [], "host", store)
        assert folder_state(tmp_path / "state") == {}
        establish(tmp_path / "state", [], "host", store)


def test_a_run_that_cannot_write_its_pid_does_not_keep_the_lock(tmp_path: Path) -> None:
    with file_size_limit(0), pytest.raises(StoreError, match="File too large"):
        RunLock(tmp_path).acquire()
    with RunLock(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
