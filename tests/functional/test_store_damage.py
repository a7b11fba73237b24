"""A store whose bytes a disk, a tool or a hand has changed: it is refused with a remedy, or what
makes no sense is set aside and the rest counts.

DAMAGE_SEED=7 repeats the damage of that number, in the files that are made anew.
"""

import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.errors import StoreError
from agent.model.node_records import RecordChanges
from agent.store.records import Records
from agent.store.store import open_store
from tests.unit.store.record_samples import claim, device, instance, node, write
from tests.unit.store.trees import ENDPOINT, ROOT, contents, node_view

pytestmark = pytest.mark.long

HERE = node()
GUESTS = [instance(host="h1", node=HERE.uuid) for _ in range(120)]
CLAIMS = [claim(guest, HERE) for guest in GUESTS]
VIEW = node_view(cells=20)
PAGE = 4096
# What was written into damaged stores to see that they work.
OWN: set[str] = set()
# What the undamaged one tells after the crash.
KEPT: set[tuple[str, str]] = set()


def fill(folder: Path) -> None:
    """A store with a node, its tree, its devices and its guests; left as a crash leaves it in
    ``crashed``, whole in ``stopped``.
    """
    with open_store(folder / "stopped") as store:
        store.save_view(ENDPOINT, ROOT, None, VIEW)
        devices = tuple(device(HERE, f"0000:00:{number:02x}.0") for number in range(8))
        write(
            Records(store),
            RecordChanges(
                nodes=(HERE,),
                instances=tuple(GUESTS[:100]),
                claims=tuple(CLAIMS[:100]),
                devices=devices,
            ),
        )
    shutil.copytree(folder / "stopped", folder / "running")
    with open_store(folder / "running") as store:
        for number in range(100, 120):
            write(
                Records(store), RecordChanges(instances=(GUESTS[number],), claims=(CLAIMS[number],))
            )
        shutil.copytree(folder / "running", folder / "crashed")
        with Records(store).reading() as reading:
            KEPT.update(told(reading.load(HERE.uuid)))
    assert (folder / "crashed" / "database/store.sqlite-wal").stat().st_size > 20 * PAGE


Damage = Callable[[random.Random, bytearray], bytearray]


def bits(chance: random.Random, data: bytearray) -> bytearray:
    for _ in range(chance.choice([1, 1, 3, 30])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def page(chance: random.Random, data: bytearray) -> bytearray:
    start = chance.randrange(0, len(data), PAGE)
    data[start : start + PAGE] = chance.choice(
        [bytes(PAGE), chance.randbytes(PAGE), b"\xff" * PAGE]
    )
    return data


def swapped(chance: random.Random, data: bytearray) -> bytearray:
    one, other = (chance.randrange(0, max(1, len(data) - PAGE), PAGE) for _ in range(2))
    data[one : one + PAGE], data[other : other + PAGE] = (
        data[other : other + PAGE],
        data[one : one + PAGE],
    )
    return data


def truncated(chance: random.Random, data: bytearray) -> bytearray:
    return data[
        : chance.choice(
            [
                chance.randrange(len(data)),
                chance.randrange(0, len(data), PAGE),
                chance.randrange(100),
                0,
            ]
        )
    ]


def longer(chance: random.Random, data: bytearray) -> bytearray:
    return data + chance.randbytes(chance.choice([1, PAGE, 10 * PAGE]))


def header(chance: random.Random, data: bytearray) -> bytearray:
    data[chance.randrange(100)] = chance.randrange(256)
    return data


DAMAGES: list[Damage] = [bits, page, swapped, truncated, longer, header]


def harmed(folder: Path, chance: random.Random, to: Path) -> str:
    """A copy of one of the stores, with damage to one of its files. Returns what was done."""
    state, damage = chance.choice(["stopped", "crashed", "crashed"]), chance.choice(DAMAGES)
    shutil.copytree(folder / state, to)
    file = (
        to
        / "database"
        / chance.choice(
            ["store.sqlite", "store.sqlite-wal"] if state == "crashed" else ["store.sqlite"]
        )
    )
    file.write_bytes(damage(chance, bytearray(file.read_bytes())))
    return f"{state} {file.name} {damage.__name__}"


def outcome(folder: Path, *, stopped: bool) -> str:
    """What becomes of a damaged store: never anything but a refusal with a remedy, or a store that
    works, also once more.
    """
    found = opened(folder, stopped=stopped)
    if found != "refused":
        with closing(sqlite3.connect(folder / "database/store.sqlite")) as connection:
            if found == "records set aside":
                # A state that is unknown breaks a constraint; the file is sound all the same.
                connection.execute("PRAGMA ignore_check_constraints = ON")
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert opened(folder, stopped=stopped) != "refused"
    return found


def opened(folder: Path, *, stopped: bool) -> str:
    try:
        with open_store(folder) as store:
            return read(Records(store), store, stopped=stopped)
    except StoreError as error:
        assert error.remedy
        assert "\n" not in error.message
        return "refused"


def read(records, store, *, stopped: bool) -> str:
    kept = store.view(ENDPOINT, ROOT)
    with records.reading() as reading:
        loaded = reading.load(HERE.uuid)
        if loaded is None:
            return "empty"
        by_id = [reading.claim(one.id) for one in loaded.claims]
        page = reading.claims([HERE.uuid], "", 1000)
    # What an index finds is what the table has.
    assert by_id == list(loaded.claims)
    assert {one.id for one in page.records} == {one.id for one in loaded.claims}
    guest = instance(host="h1", node=HERE.uuid)
    made = claim(guest, HERE)
    OWN.update({guest.uuid, made.id})
    with records.transaction([HERE.uuid]) as transaction:
        transaction.write(RecordChanges(instances=(guest,), claims=(made,)))
    with records.reading() as reading:
        after = reading.load(HERE.uuid)
    assert after is not None
    assert {one.id for one in after.claims} > {one.id for one in loaded.claims}
    if loaded.damaged:
        return "records set aside"
    held, known = (
        {one for one in records_ if one[0] not in OWN} for records_ in (told(loaded), KEPT)
    )
    if kept is None or contents(kept) != contents(VIEW) or not held <= known:
        return "other values"
    # After a stop nothing was claimed any more.
    last = {one.id for one in CLAIMS[100:]} | {one.uuid for one in GUESTS[100:]}
    return (
        "whole"
        if held == known or (stopped and held == {one for one in known if one[0] not in last})
        else "without the last"
    )


def told(loaded) -> set[tuple[str, str]]:
    """What is counted of the records of a node."""
    return {(one.id, repr(one)) for one in loaded.claims} | {
        (one.uuid, repr(one)) for one in loaded.instances
    }


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    fill(folder)
    return folder


@pytest.mark.parametrize("times", [20, pytest.param(4000, marks=pytest.mark.soak)])
def test_a_damaged_store_is_refused_or_works(stores, tmp_path, times):
    asked = os.environ.get("DAMAGE_SEED")
    seeds = [int(asked)] if asked else range(times)
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        folder, what = tmp_path / str(seed), f"DAMAGE_SEED={seed}"
        try:
            what = f"{what}: {harmed(stores, random.Random(seed), folder)}"
            outcomes[outcome(folder, stopped="stopped" in what)] += 1
        except Exception as error:
            raise AssertionError(what) from error
        shutil.rmtree(folder)
    assert asked or (outcomes["refused"] and outcomes["refused"] < times)
