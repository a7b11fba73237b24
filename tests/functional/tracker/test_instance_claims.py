"""Claims of new guests, and their abort: resource tracking 8.1."""

from tests.support.tracking import F1, F2, Host


def test_s_01_a_claim_is_one_held_row_and_the_instance_is_the_hosts(ha: Host) -> None:
    ha.claim("i1", F1)
    assert ha.usage == "2560/2/22528"
    found = ha.instance("i1")
    assert found is not None
    assert (found.host, found.launched_on, found.node) == ("HA", "HA", ha.node)
    assert [(one.half, one.state) for one in ha.claims("i1")] == [("only", "held")]
    assert ha.audit().stats["num_instances"] == 1


def test_s_02_a_second_claim_adds_its_amounts_exactly(ha: Host) -> None:
    ha.claim("i1", F1)
    ha.claim("i2", F2)
    assert ha.usage == "6656/4/74240"
