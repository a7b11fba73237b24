import pytest

from agent.errors import ConfigErrors
from agent.model.names import ApiVersion
from drivers.ironic.managed import LEAST, WITH_SHARDS, Scope

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
