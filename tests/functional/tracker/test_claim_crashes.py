"""Claims whose store fails, or whose process dies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import StoreError
from tests.support.broken_store import Moment, breakable, fail
from tests.support.child import Child
from tests.support.tracking import F1, Host, World, refused, stats_of

EARLY: tuple[Moment, ...] = ("begin", "write", "commit")


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    """A process that claims, see its module."""
    process = Child("tests.functional.tracker.claim_until_killed", tmp_path / "output")
    yield process
    process.kill()


def killed(child: Child, world: World, folder: Path, moment: Moment) -> Host:
    """HA anew, after the process was killed at that moment of its claim."""
    location = world.store.location
    connection = (
        None if location.file is not None else location.url.render_as_string(hide_password=False)
    )
    child.start({"path": str(folder), "connection": connection, "moment": moment})
    child.kill()
    return world.plain("HA")


@pytest.mark.parametrize("moment", EARLY)
def test_a_claim_that_cannot_be_saved_leaves_nothing(
    world: World, ha: Host, moment: Moment
) -> None:
    breakable(ha).break_at(moment, fail)
    with refused(world, "store.unusable"):
        ha.claim("i1", F1)
    assert ha.usage == "512/1/2048"
    assert ha.instance("i1") is None
    ha.claim("i1", F1)
    assert ha.usage == "2560/2/22528"


@pytest.mark.parametrize("moment", EARLY)
def test_an_abort_that_cannot_be_saved_gives_nothing_back(
    world: World, ha: Host, moment: Moment
) -> None:
    ha.claim("i1", F1)
    breakable(ha).break_at(moment, fail)
    with refused(world, "store.unusable"):
        ha.abort("i1")
    assert ha.usage == "2560/2/22528"
    assert not ha.abort("i1").repeated
    assert ha.usage == "512/1/2048"


def test_a_claim_whose_commit_is_in_doubt_counts_if_it_came_through(ha: Host) -> None:
    breakable(ha).break_at("answer", fail)
    with pytest.raises(StoreError):
        ha.claim("i1", F1)
    assert ha.usage == "2560/2/22528"
    assert ha.claim("i1", F1).repeated
    assert ha.usage == "2560/2/22528"


def test_a_claim_that_was_committed_is_there_after_a_kill(
    world: World, child: Child, tmp_path: Path
) -> None:
    ha = killed(child, world, tmp_path / "state", "answer")
    assert ha.usage == "2560/2/22528"
    assert [claim.state for claim in ha.claims("i1")] == ["held"]
    assert stats_of(ha.audit())["num_instances"] == 1
    assert ha.claim("i1", F1).repeated


def test_a_claim_that_was_not_committed_is_gone_after_a_kill(
    world: World, child: Child, tmp_path: Path
) -> None:
    ha = killed(child, world, tmp_path / "state", "commit")
    assert ha.usage == "512/1/2048"
    assert ha.instance("i1") is None
    assert not ha.claim("i1", F1).repeated
