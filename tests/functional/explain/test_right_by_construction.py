"""For random hosts and requests, an explanation is true: what fits has a candidate and is granted,
and without a reason the request would fit, while without a part of it it would not.
"""

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

from agent.explain.explanation import ExplainedRequest
from agent.explain.scheduler_query import SchedulerQuery
from tests.support import backends

backends.require("placement.deploy")
from tests.functional.explain.explained_host import (  # noqa: E402 - needs Placement
    ExplainedHost,
    some_claim,
    some_query,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
# Four tests, so that they can run side by side.
EXAMPLES = int(os.environ.get("EXPLAINED", "8"))


@pytest.mark.parametrize("strict", [False, True], ids=["mixed", "strict"])
@pytest.mark.parametrize("of_guest", [False, True], ids=["query", "guest"])
@given(seed=st.integers(0, 2**32))
# Without one of its parts, this request is no query that Placement takes.
@example(seed=377552106)
@settings(
    max_examples=EXAMPLES,
    # A smaller seed is no simpler case.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
def test_every_explanation_is_true(
    hosts: list[ExplainedHost], strict: bool, of_guest: bool, seed: int
) -> None:
    dice = random.Random(seed)
    host = hosts[strict]
    with host.occupied(dice):
        if of_guest:
            request = host.request(some_claim(dice))
            # Another seed is taken, so that each example counts.
            assume(request is not None)
            assert request is not None
        else:
            request = ExplainedRequest(SchedulerQuery(some_query(dice)))
        explained = host.explain(request, suggests=dice.random() < 0.2)
        host.check(request, explained)
