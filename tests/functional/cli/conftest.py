"""Fixtures of the command line: an agent on a real Placement over HTTP, in this process where
another one adds nothing.
"""

from pathlib import Path

import pytest

from tests.functional.cli.setups import on
from tests.support.placement import Placement
from tests.support.system import AgentHere


@pytest.fixture
def agent(http_placement: Placement, tmp_path: Path) -> AgentHere:
    """``fake.numa`` called node-a on ``http_placement``."""
    return AgentHere(tmp_path / "agent", on(http_placement))
