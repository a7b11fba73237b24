"""What the threat model says is shown by a test is."""

import re

from tests.support.child import CHECKOUT


def test_every_test_that_the_threat_model_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", (CHECKOUT / "docs" / "threat-model.md").read_text()))
    there = {
        name
        for file in (CHECKOUT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert len(named) > 50
    assert named <= there, named - there
