"""Guests that the hypervisor shows, and their import, over the socket. Every answer is held to
openapi.yaml.
"""

import pytest

from agent.model.devices import PciAddress
from agent.model.facts import Origin
from tests.support.site import GPUS, claim_body
from tests.support.tracking import F1, domain, guest

IMPORT = "/v1/guests/import"


@pytest.fixture
def inhabited(ha):
    """HA with a guest on record and three that are on none, one of which wants the device of
    another.
    """
    gpu = (PciAddress.parse(GPUS[0]),)
    ha.claim("i1", F1)
    ha.audit(
        domains=(
            domain("i1", 2048, 1),
            domain("i2", 2048, origin=Origin(F1, "p", "u")),
            domain("i3", 512, 1, devices=gpu),
            domain("i4", 512, 1, devices=gpu, state="stopped"),
        )
    )
    ha.changed.clear()
    return ha


def outcomes(answer):
    (node,) = answer.json["nodes"]
    return {one["name"]: one["outcome"] for one in node["guests"]}


def test_the_guests_are_shown_with_what_the_records_say(site, inhabited):
    answer = site.call("GET", "/v1/guests")
    assert outcomes(answer) == {
        "i1": "known",
        "i2": "importable",
        "i3": "importable",
        "i4": "refused",
    }
    (node,) = answer.json["nodes"]
    assert (node["name"], node["uuid"], node["errors"]) == ("HA", inhabited.node, [])
    shown = {one["name"]: one for one in node["guests"]}
    assert (
        shown["i1"]["claim"],
        shown["i2"]["flavor"],
        shown["i2"]["vcpus"],
        shown["i3"]["devices"],
    ) == (inhabited.claims("i1")[0].id, "F1", None, [GPUS[0]])
    assert shown["i4"]["refusals"] == [
        {
            "reason": f"it has device {GPUS[0]}, which belongs to guest i3 ({guest('i3')})",
            "remedy": "take it from one of them",
        }
    ]
    assert inhabited.usage == "2560/2/22528"


def test_an_import_answers_with_what_became_of_each(site, inhabited):
    dry = site.call("POST", IMPORT, {"dry_run": True})
    assert (dry.json["dry_run"], outcomes(dry)["i2"], inhabited.usage, inhabited.changed) == (
        True,
        "importable",
        "2560/2/22528",
        [],
    )
    answer = site.call("POST", IMPORT, {})
    assert outcomes(answer) == {"i1": "known", "i2": "imported", "i3": "imported", "i4": "refused"}
    assert (inhabited.usage, inhabited.changed) == ("5120/4/43008", [inhabited.node])
    claim = site.call("GET", f"/v1/claims?instance={guest('i3')}").json["claims"][0]
    assert (claim["state"], [one["address"] for one in claim["devices"]]) == ("consumed", [GPUS[0]])
    assert outcomes(site.call("POST", IMPORT, {"nodes": ["H*"]})) == {
        "i1": "known",
        "i2": "known",
        "i3": "known",
        "i4": "refused",
    }


def test_what_was_imported_is_an_instance_like_any_other(site, inhabited):
    site.call("POST", IMPORT, {"nodes": [inhabited.node]})
    found = site.call("GET", f"/v1/instances/{guest('i2')}")
    assert (found.json["host"], found.json["vm_state"], found.json["flavor"]["name"]) == (
        "HA",
        "active",
        "F1",
    )
    site.call(
        "PATCH",
        f"/v1/instances/{guest('i2')}",
        {"deleted": True},
        {"If-Match": found.headers["etag"]},
    )
    assert inhabited.usage == "3072/3/22528"
    again = claim_body(inhabited, "i3")
    site.refused("instance.claimed", 409, "POST", "/v1/claims", again)


def test_a_node_that_cannot_be_asked_does_not_keep_the_others_from_it(site, inhabited):
    inhabited.devices = None
    inhabited.beside("node-b").audit(domains=None)
    nodes = {one["name"]: one for one in site.call("POST", IMPORT, {}).json["nodes"]}
    assert [one["outcome"] for one in nodes["HA"]["guests"]].count("imported") == 2
    assert [(one["code"], one["message"]) for one in nodes["node-b"]["errors"]] == [
        (
            "node.guests-untold",
            "the guests of node node-b are unknown: its driver does not report guests",
        )
    ]


def test_guests_that_may_not_be_all_are_told_as_such(site, ha):
    ha.audit(domains=(domain("i1", 512, 1),), incomplete={"domains": "one guest makes\nno sense"})
    (node,) = site.call("POST", IMPORT, {"dry_run": True}).json["nodes"]
    assert [one["outcome"] for one in node["guests"]] == ["importable"]
    assert [one["message"] for one in node["errors"]] == [
        r"node HA: there may be more guests: one guest makes\nno sense"
    ]


def test_a_dry_run_tells_too_that_a_node_takes_nothing_now(site, inhabited):
    inhabited.usage_step.set_listed_nodes([])
    for body in ({}, {"dry_run": True}):
        (node,) = site.call("POST", IMPORT, body).json["nodes"]
        assert ([one["code"] for one in node["errors"]], node["guests"]) == (
            ["node.unavailable"],
            [],
        )


@pytest.mark.parametrize("nodes", [["nobody"], ["HA", guest("x")]])
def test_a_node_that_there_is_not_is_refused(site, inhabited, nodes):
    site.refused("node.unknown", 404, "POST", IMPORT, {"nodes": nodes})


@pytest.mark.parametrize("body", [{"nodes": []}, {"node": "HA"}, {"dry_run": "yes"}, []])
def test_nonsense_is_refused(site, inhabited, body):
    site.refused("request.invalid", 400, "POST", IMPORT, body)


def test_a_guest_that_is_gone_is_forgotten_and_one_that_is_shown_or_moves_is_not(site, inhabited):
    gone = f"/v1/guests/{guest('i1')}"
    site.refused("state.wrong", 409, "DELETE", gone)
    inhabited.audit(domains=(), incomplete={"domains": "it hangs"})
    site.refused("node.guests-untold", 409, "DELETE", gone)
    inhabited.audit(domains=(), incomplete={})
    answer = site.call("DELETE", gone)
    assert (answer.json["deleted"], answer.json["host"], answer.json["node"]) == (True, None, None)
    assert (inhabited.usage, inhabited.claims("i1")) == ("512/1/2048", ())
    assert site.call("DELETE", gone).json == answer.json, "again is harmless"
    site.refused("instance.unknown", 404, "DELETE", f"/v1/guests/{guest('nobody')}")
