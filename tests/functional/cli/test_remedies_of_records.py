"""The remedies that end what is wrong of the records of guests: each is carried out in a shell as it
is written, and the trouble is gone then.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.cli.test_record_commands import Desk
from tests.support.local_api import ApiHere, api_here
from tests.support.placement import PlacementServer
from tests.support.shell import Shell, command_of
from tests.support.site import site_here
from tests.support.tracking import F1, F3, uuid_of


@pytest.fixture(scope="module")
def _api() -> Iterator[ApiHere]:
    with api_here() as found:
        yield found


@pytest.fixture
def desk(tmp_path: Path, placement: PlacementServer, _api: ApiHere) -> Iterator[Desk]:
    with site_here(tmp_path, placement, _api) as site:
        desk = Desk(tmp_path / "cli", site, site.world.plain("HA"))
        desk.host.claim("i1", F1)
        yield desk


def strand_build(desk: Desk) -> None:
    pass


def strand_resize(desk: Desk) -> None:
    desk.host.update("i1", vm_state="active", task_state="resize_prep")
    desk.host.move("i1", "resize", F3)


def strand_arrival(desk: Desk) -> None:
    other = desk.site.world.plain("HB")
    other.claim("i2", F1)
    other.update("i2", vm_state="active")
    desk.host.abort("i1")
    desk.host.move("i2", "live-migration")


STRANDED = {
    "a build": (strand_build, f"agent claim abort {uuid_of('claim-i1')}", "512/1/2048"),
    "a resize": (strand_resize, f"agent migrate abort {uuid_of('move-i1')}", "2560/2/22528"),
    "an arrival": (strand_arrival, f"agent migrate abort {uuid_of('move-i2')}", "512/1/2048"),
}


@pytest.mark.parametrize("title", STRANDED)
def test_a_claim_of_which_nothing_is_heard_any_more_is_ended_by_the_command_of_the_remedy(
    desk: Desk, title: str
) -> None:
    strand, command, usage = STRANDED[title]
    strand(desk)
    desk.site.world.time.pass_by(desk.host.rules.stranded_after)
    (drift,) = desk.host.audit(domains=()).drift
    assert drift.kind == "stranded-claim"
    assert command_of(drift.remedy, "agent ") == command
    Shell(desk.folder / "programs", desk.command).run(command)
    assert [one.kind for one in desk.host.audit(domains=()).drift] == []
    assert desk.host.usage == usage
