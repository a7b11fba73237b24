"""``agent tree --format dot``, and what Graphviz makes of it."""

import json
import shutil
import subprocess

import pytest

from agent.model.names import printable
from agent.render.tree_lines import render_drawing
from tests.support import backends
from tests.support.html_page import HOSTILE
from tests.unit.render.test_tree_drawing import stored


def labels(graph):
    """The text of each box that Graphviz draws."""
    program = shutil.which("dot")
    if program is None:
        backends.missing("Graphviz", "apt-get install graphviz")
    drawn = subprocess.run(
        [program, "-Tjson"], input=graph, capture_output=True, text=True, timeout=60
    )
    assert (drawn.returncode, drawn.stderr) == (0, "")
    return {
        "".join(part["text"] for part in box["_ldraw_"] if part["op"] == "T")
        for box in json.loads(drawn.stdout, strict=False)["objects"]
    }


def test_graphviz_draws_the_tree_of_the_store(agent):
    assert agent.run("--once").code == 0
    done = agent.run("tree", "--format", "dot")
    assert done.code == 0
    rows = agent.run("tree", "--format", "json").json["nodes"][0]["tree"]
    drawn = labels(done.stdout)
    assert len(drawn) == len(rows)
    for row in rows:
        assert any(label.startswith(row["name"]) for label in drawn)


@pytest.mark.parametrize("words", [("--once",), ("status",), ("report", "page.html")])
def test_only_trees_can_be_drawn(agent, words):
    done = agent.run(*words, "--format", "dot")
    assert done.code == 64
    assert "--format dot can be used with tree only" in done.stderr


def test_graphviz_draws_hostile_names_as_they_are():
    names = [*HOSTILE, "a \U0001f600 face"]
    drawn = labels(render_drawing([stored(name, f"{name}'s cell") for name in names]))
    assert any(label.startswith(r"a \U0001f600 face") for label in drawn)
    for name in HOSTILE:
        assert f"{printable(name)}VCPU 8/64, 2 reserved, ratio 4" in drawn
