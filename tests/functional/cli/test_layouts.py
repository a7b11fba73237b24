"""Which layout a tree has, and why: the log of a start and ``agent takeover check`` say so."""

from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.setups import on, tree
from tests.support.http_placement import HttpPlacement
from tests.support.system import AgentHere

OF_NOVA = "\n[api_database]\nconnection = sqlite://\n"
UNSET = "[compute] tree_layout is unset"


class Host(AgentHere):
    """``fake.numa`` with a log, and with a configuration that is nova's or not."""

    def set_up(self, placement: HttpPlacement, *, novas: bool, **compute: str) -> None:
        self.configure(on(placement, "fake.numa", {"compute": compute}))
        if novas:
            self.config_file.write_text(self.config_file.read_text() + OF_NOVA)

    def told(self) -> str:
        """What an audit logs of the layout."""
        result = self.run("--once", "--debug")
        assert result.code == 0
        (line,) = [line for line in result.stderr.splitlines() if "the tree is " in line]
        return line.partition("node node-a: ")[2]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "agent")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (
            {"novas": False},
            f"nested, because {UNSET}, the node is new and the configuration is not nova's",
        ),
        (
            {"novas": True},
            f"flat, because {UNSET}, the node is new and the configuration is nova's",
        ),
        (
            {"novas": True, "tree_layout": "nested"},
            "nested, because [compute] tree_layout = nested",
        ),
    ],
)
def test_a_new_node_has_the_layout_of_its_configuration_and_keeps_it(
    host: Host, http_placement: HttpPlacement, setting: dict[str, Any], reason: str
) -> None:
    host.set_up(http_placement, **setting)
    (check,) = [
        check
        for check in host.run("takeover", "check", "--format", "json").json["checks"]
        if check["check"] == "layout"
    ]
    assert (check["verdict"], check["detail"]) == ("ok", f"node-a: the tree is {reason}")
    assert host.told() == f"the tree is {reason}"
    layout = reason.partition(",")[0]
    assert ("NUMA0" in tree(http_placement)) == (layout == "nested")
    # Whatever the configuration is afterwards.
    host.set_up(http_placement, novas=not setting["novas"])
    assert host.told() == f"the tree is {layout}, because {UNSET} and the root was found {layout}"
    assert ("NUMA0" in tree(http_placement)) == (layout == "nested")
