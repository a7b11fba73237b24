"""The ironic driver keeps the promises of the driver interface, with a real ironic, and with the
recorded answers for many nodes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.functional.ironic.ironic import Ironic
from tests.functional.ironic.recorded_ironic import RecordedIronic
from tests.support.agent import new_uuid
from tests.support.system import AgentHere, Result

pytestmark = pytest.mark.long


def checked(folder: Path, ironic: Mapping[str, Any], *arguments: str) -> Result:
    agent = AgentHere(
        folder, {"DEFAULT": {"host": "metal-1"}, "ironic": {"api_max_retries": 0, **ironic}}
    )
    return agent.run("driver", "check", "ironic", "--format", "json", *arguments)


def broken(result: Result) -> list[str]:
    return [promise["check"] for promise in result.json["checks"] if promise["state"] == "broken"]


def test_it_keeps_every_promise_with_a_real_ironic(ironic: Ironic, tmp_path: Path) -> None:
    nodes = [ironic.available() for _ in range(3)]
    ironic.set_traits(nodes[0], "CUSTOM_GOLD", "HW_CPU_X86_VMX")
    ironic.deploy(nodes[1], new_uuid())
    result = checked(tmp_path, ironic.credentials())
    assert (result.code, broken(result)) == (0, []), result
    assert result.json["nodes"] == {"listed": 3, "checked": sorted(nodes)}


def test_of_many_nodes_a_sample_is_checked(tmp_path: Path) -> None:
    ironic = RecordedIronic(200, page=40)
    ironic.start()
    try:
        result = checked(tmp_path, ironic.credentials())
    finally:
        ironic.stop()
    assert (result.code, broken(result)) == (0, []), result
    assert (result.json["nodes"]["listed"], len(result.json["nodes"]["checked"])) == (200, 20)
