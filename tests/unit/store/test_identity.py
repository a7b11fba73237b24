"""The node's identity."""

import logging
import stat
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from agent.errors import IdentityError, StoreError
from agent.store.identity import establish, find
from agent.store.store import Store, open_read_only
from tests.support.store_place import Place
from tests.unit.store.ordinary_user import as_ordinary_user
from tests.unit.store.trees import folder_state, names_in, uuid_of

A, B = uuid_of("a"), uuid_of("b")


@pytest.fixture
def nova(tmp_path: Path) -> Path:
    (tmp_path / "nova").mkdir()
    return tmp_path / "nova"


def _refusal(folder: Path, nova: Path, store: Store) -> IdentityError:
    """How both ways of asking refuse, without changing a file."""
    before = folder_state(folder)
    refusals = []
    for ask in (find, establish):
        with pytest.raises(IdentityError) as refused:
            ask(folder, nova, "host", store)
        refusals.append(str(refused.value))
    assert refusals[0] == refusals[1]
    assert {
        name: state for name, state in folder_state(folder).items() if "sqlite" not in name
    } == {name: state for name, state in before.items() if "sqlite" not in name}
    assert refused.value.remedy
    return refused.value


def test_a_new_node_gets_an_identity_that_stays(folder: Path, nova: Path, store: Store) -> None:
    made = establish(folder, nova, "host", store)
    assert str(uuid.UUID(made)) == made
    assert (folder / "compute_id").read_text() == f"{made}\n"
    assert stat.S_IMODE((folder / "compute_id").stat().st_mode) == 0o644
    assert establish(folder, nova, "host", store) == find(folder, nova, "host", store) == made
    assert store.identity("host") == made
    assert [name for name in names_in(folder) if "sqlite" not in name] == ["compute_id"]


def test_asking_makes_nothing(folder: Path, nova: Path) -> None:
    with open_read_only(folder) as store:
        assert find(folder, nova, "host", store) is None
    assert not folder.exists()


def test_novas_identity_is_adopted_and_novas_file_left_alone(
    folder: Path, nova: Path, store: Store
) -> None:
    (nova / "compute_id").write_text(A)
    before = folder_state(nova)
    assert find(folder, nova, "host", store) == A
    assert not (folder / "compute_id").exists()
    assert establish(folder, nova, "host", store) == A
    assert (folder / "compute_id").read_text() == f"{A}\n"
    assert folder_state(nova) == before


def test_the_own_file_wins_over_novas(folder: Path, nova: Path, store: Store) -> None:
    (folder / "compute_id").write_text(f"{A}\n")
    (nova / "compute_id").write_text(f"{B}\n")
    assert find(folder, nova, "host", store) == establish(folder, nova, "host", store) == A


def test_a_file_in_another_spelling_is_read_and_left_as_it_is(
    folder: Path, nova: Path, store: Store
) -> None:
    (folder / "compute_id").write_text(f"  {A.upper()}  \r\n\n")
    before = (folder / "compute_id").read_bytes()
    assert establish(folder, nova, "host", store) == A
    assert (folder / "compute_id").read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"not-a-uuid\n",
        b"\xff\xfe\x00",
        A.encode() + b"\n" + B.encode(),
        A.encode()[:20],
        b"x" * 100000,
    ],
)
@pytest.mark.parametrize("whose", ["own", "nova's"])
def test_a_damaged_file_is_refused_and_named(
    folder: Path, nova: Path, store: Store, content: bytes, whose: str
) -> None:
    file = (folder if whose == "own" else nova) / "compute_id"
    file.write_bytes(content)
    error = _refusal(folder, nova, store)
    assert f"{file} does not hold one uuid" in error.message
    assert "\n" not in str(error)
    assert len(error.message) < 500


def test_a_file_that_may_not_be_read_is_not_taken_for_none() -> None:
    def attempt(shared: Path) -> str:
        (shared / "nova" / "compute_id").chmod(0)
        with open_read_only(shared / "state") as store, pytest.raises(IdentityError) as refused:
            find(shared / "state", shared / "nova", "host", store)
        return str(refused.value)

    def made(shared: Path) -> None:
        (shared / "nova").mkdir()
        (shared / "nova" / "compute_id").write_text(A)

    assert "nova/compute_id cannot be read: Permission denied" in as_ordinary_user(attempt, made)


def test_a_file_that_contradicts_the_store_is_refused_with_both_uuids_and_places(
    folder: Path, nova: Path, store: Store
) -> None:
    store.save_identity("host", A)
    (folder / "compute_id").write_text(B)
    error = _refusal(folder, nova, store)
    for named in (A, B, str(folder / "compute_id"), str(store)):
        assert named in error.message


def test_a_lost_file_is_written_again_from_the_store(
    folder: Path, nova: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    made = establish(folder, nova, "host", store)
    (folder / "compute_id").unlink()
    assert find(folder, nova, "host", store) == made
    assert not (folder / "compute_id").exists()
    with caplog.at_level(logging.WARNING):
        assert establish(folder, nova, "host", store) == made
    assert (folder / "compute_id").read_text() == f"{made}\n"
    assert "was lost" in caplog.text


def test_a_lost_file_and_another_uuid_of_novas_is_refused(
    folder: Path, nova: Path, store: Store
) -> None:
    store.save_identity("host", A)
    (nova / "compute_id").write_text(B)
    error = _refusal(folder, nova, store)
    for named in (A, B, str(nova / "compute_id"), str(store)):
        assert named in error.message
    assert str(folder / "compute_id") in error.remedy


def test_a_lost_store_learns_the_identity_from_the_file(
    folder: Path, place: Place, nova: Path
) -> None:
    with place.open() as store:
        made = establish(folder, nova, "host", store)
    place.execute("DELETE FROM identity")
    with place.open() as store:
        assert establish(folder, nova, "host", store) == made
        assert store.identity("host") == made


def test_hosts_that_share_a_database_have_their_own_identities(
    tmp_path: Path, nova: Path, store: Store
) -> None:
    assert establish(tmp_path / "one", nova, "one", store) != establish(
        tmp_path / "two", nova, "two", store
    )


def test_a_folder_in_the_way_of_the_file_is_refused(folder: Path, nova: Path, store: Store) -> None:
    (folder / "compute_id").mkdir()
    with pytest.raises(IdentityError, match="compute_id cannot be read: Is a directory"):
        establish(folder, nova, "host", store)


def test_a_path_that_cannot_be_made_is_named(tmp_path: Path, nova: Path, store: Store) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"\[store\] path .*/file/state"):
        establish(tmp_path / "file" / "state", nova, "host", store)


RACER = """
import sys, time
from pathlib import Path
from agent.store.identity import establish
from agent.store.store import open_store
folder = Path(sys.argv[1])
with open_store(folder, sys.argv[2]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    print(establish(folder, folder, "host", store), flush=True)
"""


@pytest.mark.long
def test_runs_that_race_for_the_identity_agree(place: Place) -> None:
    folder = place.folder
    place.open().close()
    for _ in range(3):
        command = [sys.executable, "-c", RACER, str(folder), place.url or ""]
        racers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = {racer.communicate()[0] for racer in racers}
        assert said == {(folder / "compute_id").read_text()}
        assert [name for name in names_in(folder) if "sqlite" not in name] == ["compute_id"]
        (folder / "compute_id").unlink()
        place.execute("DELETE FROM identity")
