import json
from collections.abc import Collection

import pytest
from keystoneauth1 import exceptions as ksa
from requests import Response

from agent.errors import ConfigErrors, DriverError
from agent.model.names import ApiVersion
from drivers.ironic.managed import (
    CREDENTIALS,
    LEAST,
    WITH_SHARDS,
    NodeList,
    Scope,
    managed_nodes,
    not_ready,
    refused,
)
from drivers.ironic.node import NONE, BareMetalNode, Properties, facts_of
from tests.unit.drivers.ironic.samples import INSTANCE, NODE, OTHER, document, node


def test_a_node_has_what_ironic_tells_of_it():
    one = node(
        traits=["CUSTOM_A", "HW_CPU_X86_VMX"],
        instance_uuid=INSTANCE,
        properties={"cpus": 4},
        maintenance=True,
    )
    assert (one.uuid, one.power_state, one.provision_state, one.maintenance) == (
        NODE,
        "power off",
        "available",
        True,
    )
    assert (one.instance, one.resource_class, one.traits) == (
        INSTANCE,
        "baremetal-gold",
        frozenset({"CUSTOM_A", "HW_CPU_X86_VMX"}),
    )
    assert one.properties.cpus == 4


def test_null_is_none_and_no_traits_are_none():
    one = node(
        power_state=None, provision_state=None, resource_class=None, traits=None, instance_uuid=""
    )
    assert (one.power_state, one.provision_state, one.resource_class, one.instance, one.traits) == (
        None,
        None,
        None,
        None,
        frozenset(),
    )


@pytest.mark.parametrize(
    "nonsense",
    [None, "node", {}, {"uuid": 7}, {"uuid": "no uuid"}],
    ids=["null", "text", "empty", "number", "word"],
)
def test_what_is_no_node_is_refused(nonsense):
    with pytest.raises(DriverError, match="is no node"):
        BareMetalNode.of(nonsense)


def test_a_node_of_which_ironic_keeps_something_back_is_refused_by_name():
    hidden = {
        name: value for name, value in document().items() if name not in ("traits", "maintenance")
    }
    with pytest.raises(DriverError, match="does not report maintenance, traits of node"):
        BareMetalNode.of(hidden)


def test_facts_name_the_class_as_placement_knows_it():
    facts = facts_of(node(resource_class="baremetal--Gold.2"), 5.0, skip_in_use=False)
    assert (facts.name, facts.resource_class, facts.reserved, facts.taken_at, facts.exclusive) == (
        NODE,
        "CUSTOM_BAREMETAL_GOLD_2",
        0,
        5.0,
        True,
    )
    assert (facts.cpu, facts.memory_mib, facts.disk_gib, facts.numa) == (None, None, None, None)


# --- more ---


def test_everything_that_can_be_read_is():
    said = {
        "cpus": "8",
        "memory_mb": 16384,
        "local_gb": "500",
        "cpu_arch": "AMD64",
        "capabilities": "boot_mode:uefi, secure_boot:true,a:b:c",
    }
    found = Properties.of(said)
    assert (found.cpus, found.memory_mb, found.local_gb, found.architecture, found.doubts) == (
        8,
        16384,
        500,
        "x86_64",
        (),
    )
    assert found.capabilities == (("a", "b:c"), ("boot_mode", "uefi"), ("secure_boot", "true"))


@pytest.mark.parametrize(
    "nothing", [None, {}, [], "cpus", {"cpus": None, "cpu_arch": "", "capabilities": ""}]
)
def test_nothing_said_is_nothing_known_and_no_doubt(nothing):
    assert Properties.of(nothing) == NONE


@pytest.mark.parametrize("bad", ["many", "8.5", -1, "-1", 1.5, True, [8], {}])
def test_an_amount_that_is_none_counts_as_zero_and_is_told(bad):
    found = Properties.of({"cpus": bad, "memory_mb": "512"})
    assert (found.cpus, found.memory_mb) == (0, 512)
    (doubt,) = found.doubts
    assert doubt.startswith("cpus = ")


def test_malformed_capabilities_are_left_out_and_told_the_others_stay():
    found = Properties.of({"capabilities": "boot_mode:uefi,,lonely,:v,k:,x:1"})
    assert found.capabilities == (("boot_mode", "uefi"), ("x", "1"))
    assert len(found.doubts) == 4
    assert "'lonely'" in found.doubts[1]


def test_capabilities_may_be_a_mapping_but_nothing_else():
    assert Properties.of({"capabilities": {"boot_mode": "bios"}}).capabilities == (
        ("boot_mode", "bios"),
    )
    found = Properties.of({"capabilities": 7})
    assert (found.capabilities, len(found.doubts)) == ((), 1)


def test_what_is_told_of_a_doubt_is_short_and_has_no_control_characters():
    (doubt,) = Properties.of({"cpus": "\x1b[31m" + "9" * 200 + "x"}).doubts
    assert "\x1b" not in doubt
    assert len(doubt) < 100


# --- which nodes are an agent's own ---


THEIRS = "9d8f7e6c-5b4a-4392-8170-6f5e4d3c2b1b"


class Instances:
    """Records that know of an instance of somebody else, and of one of ours on ``OTHER``."""

    def __init__(self) -> None:
        self.asked: list[Collection[str]] = []

    def elsewhere(self, instances: Collection[str]) -> frozenset[str]:
        self.asked.append(list(instances))
        return frozenset({THEIRS} & set(instances))

    def nodes(self) -> frozenset[str]:
        return frozenset({OTHER})


def never(uuid: str) -> BareMetalNode | None:
    raise AssertionError(f"nobody need ask for {uuid}")


def test_once_that_instance_is_gone_or_the_node_is_it_is_not():
    assert managed_nodes([node()], Instances(), {OTHER: node(uuid=OTHER)}.get) == [node()]
    assert managed_nodes([node()], Instances(), lambda _uuid: None) == [node()]


def test_the_records_are_asked_once_and_only_for_nodes_with_instances():
    records = Instances()
    managed_nodes([node(), node(uuid=OTHER, instance_uuid=INSTANCE)], records, never)
    assert records.asked == [[INSTANCE]]


def test_doubts_about_properties_are_told_once_and_again_when_they_change(caplog):
    doubtful = node(properties={"cpus": "many"})
    first = NodeList.of([doubtful], 1.0)
    first.tell_doubts(NodeList())
    NodeList.of([doubtful], 2.0).tell_doubts(first)
    assert caplog.messages == [f"node {NODE}: cpus = 'many' is no number; it counts as 0"]
    NodeList.of([node(properties={"cpus": "few"})], 3.0).tell_doubts(first)
    assert len(caplog.messages) == 2


# --- more ---


URL = "http://ironic.test/v1"


def test_unset_is_everything_and_an_empty_group_is_the_default_one():
    assert Scope().filters == {}
    assert Scope(group="").filters == {"conductor_group": ""}
    assert Scope(group="racka", shard="s1").filters == {"conductor_group": "racka", "shard": "s1"}


def test_versions_are_compared_by_number():
    assert ApiVersion.of("1.109") > WITH_SHARDS > LEAST > ApiVersion.of("1.9")
    assert str(ApiVersion.of("1.82")) == "1.82"


def test_all_that_is_too_new_is_told_at_once():
    with pytest.raises(ConfigErrors) as refused:
        Scope(group="racka", shard="s1").check(ApiVersion.of("1.40"), URL)
    assert len(refused.value.errors) == 2


def test_an_api_that_knows_the_filters_will_do():
    Scope(group="racka").check(LEAST, URL)
    Scope(group="racka", shard="s1").check(WITH_SHARDS, URL)


def test_agents_of_one_part_have_one_lease_and_those_of_others_another():
    names = {
        Scope(*parts).lease
        for parts in [(None, None), ("", None), ("racka", None), (None, "racka"), ("racka", "s1")]
    }
    assert len(names) == 5
    assert Scope("racka", "s1").lease == Scope("racka", "s1").lease


# --- what ironic says of its refusals, in the forms of its releases, and nothing of what stands in front of it ---


def answer(status, body):
    made = Response()
    made.status_code, made._content = (
        status,
        body.encode() if isinstance(body, str) else json.dumps(body).encode(),
    )
    return made


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {
                "error_message": json.dumps(
                    {"faultcode": "Client", "faultstring": "No such\nnode", "debuginfo": None}
                )
            },
            ": No such node",
        ),
        ({"error_message": {"faultstring": "No such node"}}, ": No such node"),
        (
            {
                "error_message": json.dumps(
                    {"code": 406, "title": "Not Acceptable", "description": "Version 1.999"}
                )
            },
            ": Version 1.999",
        ),
        ({"error_message": "plain text"}, ": plain text"),
        ({"error_message": "{no json"}, ""),
        ({"error_message": None}, ""),
        ({}, ""),
        ([], ""),
        ("<html>Bad Gateway</html>", ""),
        ("", ""),
        ({"error_message": "x" * 1000}, f": {'x' * 300}..."),
        ({"error_message": "\x1b[31mred"}, ": \\x1b[31mred"),
    ],
    ids=[
        "json in json",
        "json",
        "description",
        "text",
        "broken",
        "null",
        "nothing",
        "list",
        "page",
        "empty",
        "long",
        "control",
    ],
)
def test_ironics_own_words_are_told_and_nobody_elses(body, said):
    error = refused(answer(409, body), "GET /v1/nodes")
    assert error.message == f"ironic GET /v1/nodes -> 409{said}"


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, "credentials"),
        (403, "role"),
        (404, "endpoint_override"),
        (406, "endpoint_override"),
        (503, "log of ironic"),
    ],
)
def test_each_status_has_its_remedy(status, remedy):
    assert remedy in refused(answer(status, {}), "GET /v1").remedy


@pytest.mark.parametrize(
    ("error", "what", "kind"),
    [
        (ksa.EndpointNotFound(), "the service catalog has no bare-metal endpoint", "catalog"),
        (ksa.Unauthorized(), "identity refuses the credentials", CREDENTIALS),
        (ksa.MissingAuthPlugin(), "there are no credentials", CREDENTIALS),
        (ksa.SSLError("self-signed"), "its certificate is not accepted", "tls"),
        (ksa.ServiceUnavailable(), "identity failed", "identity"),
        (ksa.ConnectTimeout("late"), "no answer in time", "timeout"),
        (ksa.ConnectFailure("refused"), "no connection", "connect"),
        (ksa.UnknownConnectionError("cut", OSError("cut")), "the connection broke", "broken"),
    ],
    ids=["catalog", "refused", "missing", "tls", "identity", "timeout", "connect", "broken"],
)
def test_a_lost_connection_is_told_by_what_it_means(error, what, kind):
    found = not_ready(error, "http://ironic.test/v1")
    assert found.message.startswith(f"ironic at http://ironic.test/v1: {what}")
    assert (found.data["kind"], bool(found.remedy)) == (kind, True)
