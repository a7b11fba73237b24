import pytest

from agent.errors import ConfigErrors
from agent.model.names import ApiVersion
from drivers.ironic.managed import LEAST, WITH_SHARDS, Scope

URL = "http://ironic.test/v1"


def test_unset_is_everything_and_an_empty_group_is_the_default_one():
    assert Scope().filters == {}
    assert Scope(group="").filters == {"conductor_group": ""}
    assert Scope(group="racka", shard="s1").filters == {"conductor_group": "racka", "shard": "s1"}


def test_only_a_shard_needs_the_newer_version():
    assert (Scope(group="racka").version, Scope(shard="s1").version) == (LEAST, WITH_SHARDS)


def test_versions_are_compared_by_number():
    assert ApiVersion.of("1.109") > WITH_SHARDS > LEAST > ApiVersion.of("1.9")
    assert str(ApiVersion.of("1.82")) == "1.82"


@pytest.mark.parametrize(
    ("scope", "highest", "option"),
    [
        (
            Scope(group="racka"),
            "1.40",
            "[ironic] conductor_group = racka needs an ironic API of 1.46",
        ),
        (Scope(group=""), "1.45", "[ironic] conductor_group =  needs"),
        (Scope(shard="s1"), "1.81", "[ironic] shard = s1 needs an ironic API of 1.82"),
        (Scope(), "1.45", "the driver ironic needs an ironic API of 1.46"),
    ],
    ids=["group", "default group", "shard", "neither"],
)
def test_an_api_that_would_ignore_a_filter_is_refused(scope, highest, option):
    with pytest.raises(ConfigErrors) as refused:
        scope.check(ApiVersion.of(highest), URL)
    assert option in refused.value.message
    assert f"{URL} has no more than {highest}" in refused.value.message


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
