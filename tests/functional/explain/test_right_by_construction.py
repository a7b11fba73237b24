"""For random hosts and requests, an explanation is true: what fits has a candidate and is granted,
and without a reason the request would fit, while without a part of it it would not.
"""

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent.explain.explanation import ExplainedRequest
from agent.explain.scheduler_query import SchedulerQuery
from tests.support import backends

backends.require("placement.deploy")
from tests.support.explained_host import (  # noqa: E402 - needs Placement
    ExplainedHost,
    some_claim,
    some_query,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
EXAMPLES = int(__import__("os").environ.get("EX", "500"))


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=EXAMPLES,
    # A smaller seed is no simpler case.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
def test_every_explanation_is_true(hosts: list[ExplainedHost], seed: int) -> None:
    dice = random.Random(seed)
    host = dice.choice(hosts)
    with host.occupied(dice):
        if dice.random() < 0.4:
            request = ExplainedRequest(SchedulerQuery(some_query(dice)))
        else:
            claim = some_claim(dice)
            found = host.request(claim)
            if found is None:
                return
            request = found
        explained = host.explain(request, suggests=dice.random() < 0.2)
        host.check(request, explained)
