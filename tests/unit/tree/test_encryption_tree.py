"""How many contexts each technique is given."""

import pytest

from agent.model.host_units import EncryptionFacts
from agent.tree.children import offered
from agent.tree.policy import EncryptionPolicy


@pytest.mark.parametrize(
    ("found", "guests", "expected"),
    [
        ({}, 16, {}),
        ({"sev": 15, "sev_es": 100}, None, {"sev": 15, "sev_es": 100}),
        ({"sev": 15, "sev_es": 100}, 10, {"sev": 10, "sev_es": 100}),
        ({"sev": 15, "sev_es": 100}, 0, {"sev_es": 100}),
        ({"sev": 15, "sev_es": 100, "sev_snp": 100}, None, {"sev": 15, "sev_snp": 100}),
        ({"sev_es": 100, "sev_snp": 0}, None, {"sev_es": 100}),
        ({"tdx": 31}, 40, {"tdx": 31}),
        ({"tdx": 31}, 8, {"tdx": 8}),
        ({"sev": 0}, 16, {}),
        ({"sev": None, "sev_es": None}, None, {}),
        ({"sev": None, "sev_es": None}, 16, {"sev": 16}),
    ],
)
def test_contexts_that_are_offered(found, guests, expected):
    assert offered(EncryptionFacts(found), EncryptionPolicy(guests)) == expected
