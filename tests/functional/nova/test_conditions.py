"""The commands that an observer names without having asked nova, carried out as they stand, by the real
tools on the real Placement and on nova's own API: each does nothing where it would be wrong.

``OPENSTACK_CLIENT`` names an ``openstack`` command with osc-placement, ``NOVA_PYTHON`` a Python with
nova 34; without them this is left out.
"""

import re
from pathlib import Path

import pytest

from tests.functional.nova.nova_api import NovaApi
from tests.functional.nova.watched_host import HELD, ROOT, Watched, a_guest
from tests.support.agent import new_uuid
from tests.support.http_placement import HttpPlacement
from tests.support.shell import Shell
from tests.support.system import AgentHere

pytestmark = pytest.mark.long

LARGER = {**HELD, "MEMORY_MB": 4096}


class NovasShell(Shell):
    """A shell with a virsh that writes down what it is told."""

    def __init__(
        self, folder: Path, agent: AgentHere, placement: HttpPlacement, nova: NovaApi
    ) -> None:
        super().__init__(folder, agent, placement.url, nova.url)
        self._destroyed = folder / "virsh.log"
        self._destroyed.touch()
        self.has("virsh", f'echo "$@" >> {self._destroyed}')

    def carry_out(self, remedy: str) -> None:
        """Run each openstack command of a remedy; a condition before it need not hold."""
        for command in re.findall(
            r"(?:^|: )(openstack .*?)(?=; if |; a guest |; then: |$)", remedy
        ):
            self.run(f"{command} || true")

    @property
    def destroyed(self) -> set[str]:
        """The guests that virsh was told to destroy."""
        words = (line.split() for line in self._destroyed.read_text().splitlines())
        return {last for first, *_, last in words if first == "destroy"}


def test_a_command_whose_condition_does_not_hold_changes_nothing(
    tmp_path: Path, http_placement: HttpPlacement, nova: NovaApi
) -> None:
    watched = Watched(tmp_path, http_placement)
    watched.as_nova_has_it()
    other, shell = watched.other, NovasShell(tmp_path / "bin", watched.agent, http_placement, nova)
    elsewhere = other.create_provider("node-b")
    other.set_inventory(elsewhere, {"VCPU": 80, "MEMORY_MB": 163840, "DISK_GB": 1000})
    on_b = {"host": "node-b", "node": "node-b"}
    # Both here and there; a guest that was evacuated or left behind; gone from here or arriving.
    evacuated, stays, left, astray, gone, comes, built = (new_uuid() for _ in range(7))
    nova.has(
        servers=[
            {"uuid": evacuated, **on_b},
            stays,
            {"uuid": left, **on_b},
            {"uuid": astray, "task_state": "migrating", **on_b},
            {"uuid": gone, **on_b},
            comes,
            {"uuid": built, "vm_state": "building", "task_state": "spawning"},
        ]
    )
    watched.has(*(a_guest(uuid, "a guest") for uuid in (evacuated, stays, left, astray)))
    for uuid in (evacuated, stays):
        other.claim({ROOT: HELD, elsewhere: HELD}, uuid)
    for uuid in (gone, comes):
        other.claim({ROOT: LARGER, elsewhere: LARGER}, uuid)
    for uuid in (left, astray):
        other.claim({elsewhere: HELD}, uuid)
    other.claim({ROOT: {"VCPU": 1, "MEMORY_MB": 512}}, built)
    found = {one["consumer"]: one["remedy"] for one in watched.observe()["drift"]}
    assert found.keys() == {evacuated, stays, left, astray, gone, comes, built}
    assert "nova-compute destroys the guest of an evacuated server when it starts" in found[left]
    before = http_placement.dump()
    for uuid in (evacuated, astray, comes, built):
        shell.carry_out(found[uuid])
    assert http_placement.dump() == before
    assert shell.destroyed == set()
    # Where they hold, the same commands end what was told.
    for uuid in (stays, gone):
        shell.carry_out(found[uuid])
    assert other.allocations(stays)["allocations"].keys() == {ROOT}
    assert other.allocations(gone)["allocations"].keys() == {elsewhere}
    shell.carry_out(found[left].partition("; if it does not move")[0])
    assert shell.destroyed == {left}
    assert other.allocations(left)["allocations"].keys() == {elsewhere}


@pytest.mark.parametrize("lives", ["here", "there"])
def test_a_managed_guest_that_is_on_two_hosts_in_placement_is_told_and_its_commands_end_it(
    tmp_path: Path, http_placement: HttpPlacement, nova: NovaApi, lives: str
) -> None:
    watched = Watched(tmp_path, http_placement)
    other, shell = watched.other, NovasShell(tmp_path / "bin", watched.agent, http_placement, nova)
    elsewhere, uuid = other.create_provider("node-b"), new_uuid()
    other.set_inventory(elsewhere, {"VCPU": 80, "MEMORY_MB": 163840, "DISK_GB": 1000})
    on_b = {"host": "node-b", "node": "node-b"}
    nova.has(servers=[uuid if lives == "here" else {"uuid": uuid, **on_b}])

    def told() -> list[str]:
        found = watched.agent.run("--once", "--format", "json").json["nodes"][0]["drift"]
        return [one["remedy"] for one in found if one["kind"] == "allocation-mismatch"]

    watched.has(a_guest(uuid, "a guest"))
    told()
    other.claim({ROOT: HELD}, uuid)
    watched.agent.run("guests", "import")
    assert told() == told() == []
    other.claim({ROOT: HELD, elsewhere: HELD}, uuid)
    for _ in range(2):
        (remedy,) = told()
    shell.carry_out(remedy)
    if lives == "there":
        assert shell.destroyed == {uuid}
        watched.has()
        told()
        (command,) = re.findall(r"any more: agent (guests forget \S+);", remedy)
        assert watched.agent.run(*command.split()).code == 0
        told()
    assert shell.destroyed == ({uuid} if lives == "there" else set())
    assert other.allocations(uuid)["allocations"].keys() == {ROOT if lives == "here" else elsewhere}
    assert told() == []
