"""How a node comes into Placement, and what it may meet there."""

import pytest

from agent.model.provider_tree import ProviderTree
from agent.placement.server import Server
from tests.functional.placement.conftest import READ_R, Host, seen
from tests.support import faults
from tests.support.agent import NAME, ROOT, ScriptedDriver, new_uuid, shaped, total
from tests.support.placement import PlacementServer
from tests.support.settled import AGENT_TRAIT, Want, clean, node, settled

VCPU = {"VCPU": total(16)}
ASK_TRAITS = f"GET traits?name=in:COMPUTE_NODE,{AGENT_TRAIT},OWNER_NOVA -> 200"
ASK_TRAIT = f"GET traits?name=in:{AGENT_TRAIT} -> 200"
MAKE_TRAIT = f"PUT traits {AGENT_TRAIT} -> 201"

pytestmark = pytest.mark.usefixtures("short_waits")


class Crash(BaseException):
    """The process dies here; nothing in it may catch that."""


def _crash(_exchange: object) -> None:
    raise Crash


def test_the_first_cycle_on_an_empty_server(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(VCPU))
    report = agent.cycle(start=True)
    assert (report.state, report.attempts, report.errors) == ("changed", 1, ())
    # The traits are asked for before the POST, because names are learned before the plan is made.
    assert seen(placement) == [
        "GET / -> 200",
        "GET in_tree=R -> 200",
        ASK_TRAITS,
        "POST RP R -> 200",
        MAKE_TRAIT,
        "PUT inv R g0 -> 200",
        "PUT tr R g1 -> 200",
    ]
    assert placement.other.generation(ROOT) == 2
    settled(agent, placement, agent_log, {NAME: node(VCPU)})


def test_a_server_below_1_30_is_refused_with_one_request(
    host: Host, agent_log: pytest.LogCaptureFixture
) -> None:
    old = PlacementServer(max_version="1.29")
    agent = host(shaped(VCPU), placement=old)
    report = agent.report()
    assert report.nodes == ()
    (error,) = report.errors
    assert error.code == "placement.too-old"
    assert error.message.startswith("needs placement 1.30, server offers 1.29")
    assert "upgrade" in error.remedy
    assert seen(old) == ["GET / -> 200"]
    clean(old, agent_log)
    agent.stop()
    assert old.dump()["providers"] == {}
    old.close()


def test_a_lost_answer_to_the_post_does_not_make_a_second_provider(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(VCPU))
    lost = placement.faults.add(
        faults.read_timeout(applied=True), method="POST", path="^/resource_providers$"
    )
    report = agent.cycle(start=True)
    assert lost.hits == 1
    assert report.state == "degraded"
    assert [one.code for one in report.errors] == ["placement.unreachable"]
    assert seen(placement)[-1] == "POST RP R -> read-timeout"
    placement.clear()
    assert agent.cycle().state == "changed"
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        *READ_R,
        ASK_TRAIT,
        MAKE_TRAIT,
        "PUT inv R g0 -> 200",
        "PUT tr R g1 -> 200",
    ]
    settled(agent, placement, agent_log, {NAME: node(VCPU)})


def test_a_root_that_another_agent_made_meanwhile_is_adopted(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(VCPU))
    placement.faults.add(
        faults.before(lambda _: placement.other.create_provider(NAME, ROOT)),
        method="POST",
        path="^/resource_providers$",
    )
    report = agent.cycle(start=True)
    assert (report.state, report.attempts) == ("changed", 2)
    # A new plan rather than a patched one, because what was found may have contents: hence the
    # second structure GET.
    assert seen(placement)[3:] == [
        "POST RP R -> 409",
        "GET RP R -> 200",
        "GET in_tree=R -> 200",
        *READ_R,
        ASK_TRAIT,
        MAKE_TRAIT,
        "PUT inv R g0 -> 200",
        "PUT tr R g1 -> 200",
    ]
    assert [
        one.getMessage()
        for one in agent_log.records
        if one.levelname == "INFO" and "adopted" in one.getMessage()
    ] == [f"adopted provider {NAME} ({ROOT}), which was created meanwhile"]
    settled(agent, placement, agent_log, {NAME: node(VCPU)})


def test_a_name_held_by_another_uuid_is_told_and_left_alone(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    holder = placement.other.create_provider(NAME)
    before = placement.dump()
    agent = host(shaped(VCPU))
    report = agent.cycle(start=True)
    assert report.state == "degraded"
    assert [one.status for one in report.outcomes] == ["failed", *["skipped"] * 3]
    (error,) = report.errors
    assert error.code == "placement.name-conflict"
    assert ROOT in error.message
    assert holder in error.message
    assert holder in error.remedy
    assert [one.kind for one in report.drift] == ["name-conflict"]
    refused = [
        "POST RP R -> 409",
        "GET RP R -> 404",
        f"GET name={NAME} -> 200",
        # What the holder has is told with it.
        f"GET in_tree={holder} -> 200",
        f"GET al {holder} -> 200",
    ]
    assert seen(placement)[3:] == refused
    assert placement.dump() == before
    placement.clear()
    assert agent.cycle().errors == report.errors
    assert seen(placement) == ["GET in_tree=R -> 200", ASK_TRAIT, *refused]
    assert placement.dump() == before
    clean(placement, agent_log)


def test_a_root_with_another_name_is_never_renamed_nor_written_to(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    placement.other.create_provider("old-name", ROOT)
    placement.other.set_inventory(ROOT, {"VCPU": 4})
    before = placement.dump()
    agent = host(shaped(VCPU))
    report = agent.cycle(start=True)
    assert report.state == "failed"
    assert [one.code for one in report.errors] == ["placement.identity-conflict"]
    assert [one.kind for one in report.drift] == ["identity"]
    assert "old-name" in report.errors[0].message
    assert NAME in report.errors[0].message
    assert placement.writes() == []
    # A new process reads the contents again, because only an audit that came to its end keeps them.
    settled(agent, placement, agent_log, {}, before=before, state="failed", reads=(1, 4))


def test_a_crash_after_the_post_is_taken_up_by_the_next_start(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(VCPU))
    placement.faults.add(faults.before(_crash), method="PUT", path="/inventories$")
    with pytest.raises(Crash):
        agent.once()
    assert placement.other.generation(ROOT) == 0
    placement.clear()
    report = agent.once()
    assert (report.state, report.errors) == ("changed", ())
    # One trait is asked for again, because the crash came before the end of the flush, when what it
    # confirmed is kept.
    asked = f"GET traits?name=in:{AGENT_TRAIT} -> 200"
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        *READ_R,
        asked,
        "PUT inv R g0 -> 200",
        "PUT tr R g1 -> 200",
    ]
    settled(agent, placement, agent_log, {NAME: node(VCPU)})


class NovaStyle(ScriptedDriver):
    """Shapes its whole tree itself, and gives its child a new random uuid each time that it makes
    it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.looks = True

    def update_provider_tree(
        self, provider_tree: ProviderTree, nodename: str, allocations: object = None
    ) -> None:
        provider_tree.update_inventory(nodename, VCPU)
        if not (self.looks and provider_tree.exists("N0")):
            provider_tree.new_child("N0", nodename, uuid=new_uuid())
        provider_tree.update_inventory("N0", {"CUSTOM_DEVICE": total(2)})


def test_a_child_from_before_a_crash_is_known_by_its_name(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(driver=NovaStyle())
    placement.faults.add(faults.before(_crash), method="PUT", path="/inventories$")
    with pytest.raises(Crash):
        agent.once()
    assert {one["name"] for one in placement.dump()["providers"].values()} == {NAME, "N0"}
    placement.clear()
    assert agent.once().state == "changed"
    assert [one for one in placement.writes() if one.method == "POST"] == []
    settled(
        agent,
        placement,
        agent_log,
        {NAME: node(VCPU), "N0": Want({"CUSTOM_DEVICE": total(2)}, NAME)},
    )


def test_a_driver_that_gives_a_known_name_another_uuid_is_told_so_without_traffic(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(driver=NovaStyle())
    agent.cycle(start=True)
    before = placement.dump()
    agent.driver.looks = False
    placement.clear()
    report = agent.cycle()
    # No POST and no 409, because the driver's own tree refuses the second provider of a name.
    assert placement.writes() == []
    assert [one.code for one in report.errors] == ["driver.failed"]
    assert "N0" in report.errors[0].message
    settled(agent, placement, agent_log, {}, before=before, state="failed")


def test_parents_are_created_first_and_inventories_written_bottom_up(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    # Without the role service, because one reshape would else write the three inventories.
    agent = host(shaped({"VCPU": total(4)}), roles="admin")
    agent.cycle(start=True)
    placement.clear()
    vf, memory = {"SRIOV_NET_VF": total(4)}, {"MEMORY_MB": total(1024)}
    agent.driver.script = shaped(VCPU, {"N0": (NAME, memory), "PF0": ("N0", vf)})
    assert agent.cycle().state == "changed"
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "POST RP N0 under R -> 200",
        "POST RP PF0 under N0 -> 200",
        "POST reshaper N0 PF0 R -> 403",
        "PUT inv PF0 g0 -> 200",
        "PUT inv N0 g0 -> 200",
        "PUT inv R g2 -> 200",
    ]
    settled(
        agent,
        placement,
        agent_log,
        {NAME: node(VCPU), "N0": Want(memory, NAME), "PF0": Want(vf, "N0")},
    )


def test_a_parent_that_goes_away_is_created_again(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    agent = host(shaped(VCPU))
    agent.cycle(start=True)
    placement.clear()
    child = {"MEMORY_MB": total(1024)}
    agent.driver.script = shaped(VCPU, {"N0": (NAME, child)})
    placement.faults.add(
        faults.before(lambda _: placement.other.delete_provider(ROOT)),
        method="POST",
        path="^/resource_providers$",
    )
    report = agent.cycle()
    assert (report.state, report.attempts, report.errors) == ("changed", 2, ())
    assert seen(placement) == [
        "GET in_tree=R -> 200",
        "POST RP N0 under R -> 400",
        "GET RP R -> 404",
        "GET in_tree=R -> 200",
        "POST RP R -> 200",
        "POST RP N0 under R -> 200",
        "PUT inv N0 g0 -> 200",
        "PUT inv R g0 -> 200",
        "PUT tr R g1 -> 200",
    ]
    settled(agent, placement, agent_log, {NAME: node(VCPU), "N0": Want(child, NAME)})


def test_a_name_of_201_characters_is_rejected_locally(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    name = "x" * 201
    agent = host(shaped(VCPU, {name: (NAME, {"MEMORY_MB": total(1024)})}))
    report = agent.cycle(start=True)
    assert report.state == "degraded"
    (error,) = report.errors
    assert "x" * 60 in error.message
    assert "201 characters" in error.message
    assert [one for one in placement.requests if name in str(one.body)] == []
    settled(agent, placement, agent_log, {NAME: node(VCPU)}, state="degraded")


def test_without_the_role_service_a_cycle_without_reshape_works(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    cells = {f"N{cell}": (NAME, {"PCPU": total(4)}) for cell in range(3)}
    agent = host(shaped(VCPU, cells), roles="admin")
    report = agent.cycle(start=True)
    assert (report.state, report.errors) == ("changed", ())
    # The one refused reshape is the agent finding out; it remembers, for an hour and until the next
    # start.
    assert [str(one.status) for one in placement.requests if one.path == "/reshaper"] == ["403"]
    for amount, following, asked in ((6, agent.cycle, []), (8, agent.once, ["POST/reshaper"])):
        placement.clear()
        agent.driver.script = shaped(
            VCPU, {name: (NAME, {"PCPU": total(amount)}) for name in cells}
        )
        assert following().state == "changed"
        assert [one.method + one.path[-12:] for one in placement.writes()] == [
            *asked,
            *["PUT/inventories"] * 3,
        ]
    settled(
        agent,
        placement,
        agent_log,
        {NAME: node(VCPU)} | {name: Want({"PCPU": total(8)}, NAME) for name in cells},
    )


def test_a_name_is_encoded_in_a_query_and_compared_with_the_answer(
    host: Host, placement: PlacementServer, agent_log: pytest.LogCaptureFixture
) -> None:
    name = "rack 7/a&b#c+d"
    holder = placement.other.create_provider(name)
    placement.other.create_provider("rack 7/a")
    agent = host(driver=ScriptedDriver(shaped(VCPU), {ROOT: name}))
    report = agent.cycle(start=True)
    assert holder in report.errors[0].message
    assert "name=rack+7%2Fa%26b%23c%2Bd" in [one.query for one in placement.requests]
    server: Server = agent.fleet.context.server
    found = server.client().provider_named(name)
    assert found is not None
    assert (found.uuid, found.name) == (holder, name)
    assert server.client().provider_named("rack 7/A") is None
    clean(placement, agent_log)
