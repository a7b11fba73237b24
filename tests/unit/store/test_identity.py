"""The node's identity."""

from pathlib import Path

import pytest

from agent.errors import IdentityError, StoreError
from agent.store.identity import HostIdentity, establish, find, save
from agent.store.store import Store, open_read_only
from tests.support.store_place import Place
from tests.unit.store.ordinary_user import as_ordinary_user
from tests.unit.store.trees import names_in, uuid_of

A, B = uuid_of("a"), uuid_of("b")


@pytest.fixture
def nova(tmp_path: Path) -> Path:
    (tmp_path / "nova").mkdir()
    return tmp_path / "nova"


def files_in(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in names_in(folder) if "compute_id" in name}


def found(folder: Path, nova: Path, store: Store) -> HostIdentity:
    """The identity, which both ways of asking agree on."""
    before = files_in(folder)
    asked = find(folder, [nova], "host", store)
    assert files_in(folder) == before
    made = establish(folder, [nova], "host", store)
    assert asked is not None
    assert (asked.uuid, asked.source, asked.place) == (made.uuid, made.source, made.place)
    return made


def test_the_agents_own_file_is_none_of_novas_wherever_it_is(
    folder: Path, nova: Path, store: Store
) -> None:
    save(folder, A)
    known = find(folder, [folder], "host", store)
    assert known is not None
    assert (known.uuid, known.source) == (A, "store")


def test_a_file_in_another_spelling_is_read_and_left_as_it_is(
    folder: Path, nova: Path, store: Store
) -> None:
    (folder / "compute_id").write_text(f"  {A.upper()}  \r\n\n")
    before = (folder / "compute_id").read_bytes()
    known = found(folder, nova, store)
    known.confirm()
    assert (known.uuid, (folder / "compute_id").read_bytes()) == (A, before)


def test_a_file_that_may_not_be_read_is_not_taken_for_none() -> None:
    def attempt(shared: Path) -> str:
        (shared / "nova" / "compute_id").chmod(0)
        with open_read_only(shared / "state") as store, pytest.raises(IdentityError) as refused:
            find(shared / "state", [shared / "nova"], "host", store)
        return str(refused.value)

    def made(shared: Path) -> None:
        (shared / "nova").mkdir()
        (shared / "nova" / "compute_id").write_text(A)

    assert "nova/compute_id cannot be read: Permission denied" in as_ordinary_user(attempt, made)


def test_a_lost_file_is_known_from_the_database_and_written_again(
    folder: Path, nova: Path, store: Store
) -> None:
    establish(folder, [nova], "host", store).confirm()
    kept = files_in(folder)
    (folder / "compute_id").unlink()
    known = found(folder, nova, store)
    assert (known.source, known.place, files_in(folder)) == ("store", str(store), {})
    known.confirm()
    assert files_in(folder) == kept


def test_a_lost_database_learns_the_identity_from_the_file(
    folder: Path, place: Place, nova: Path
) -> None:
    with place.open() as store:
        made = establish(folder, [nova], "host", store)
        made.confirm()
    place.execute("DELETE FROM identity")
    with place.open() as store:
        found(folder, nova, store).confirm()
        assert store.identity("host") == made.uuid


def test_a_folder_in_the_way_of_the_file_is_refused(folder: Path, nova: Path, store: Store) -> None:
    (folder / "compute_id").mkdir()
    with pytest.raises(IdentityError, match="compute_id cannot be read: Is a directory"):
        establish(folder, [nova], "host", store)
    with pytest.raises(StoreError, match=r"\[store\] path"):
        save(folder, A)
