import re

from hypothesis import assume, given
from hypothesis import strategies as st

from agent.model.names import ProviderUuid
from agent.model.provider_tree import ProviderTree
from agent.render.json_report import StoredTree
from agent.render.tree_lines import render_drawing
from tests.support.html_page import HOSTILE

ROOT, CELL, OTHER = (
    ProviderUuid(f"2f0c1a5e-9b1d-4a9c-8a0e-0d6b6c1f7a1{number}") for number in range(3)
)
NAMES = st.one_of(
    st.sampled_from([*HOSTILE, 'a"]; b [', "\\N \\", "a\\nb", "#quot;", "%%", "end", "`x`"]),
    st.text(min_size=1, max_size=200),
)


def stored(name="node-1", child="node-1_NUMA0"):
    tree = ProviderTree()
    tree.new_root(name, ROOT, 1)
    tree.update_inventory(
        ROOT,
        {"VCPU": {"total": 64, "reserved": 2, "allocation_ratio": 4.0}, "DISK_GB": {"total": 0}},
    )
    tree.new_child(child, ROOT, CELL)
    tree.update_inventory(CELL, {"PCPU": {"total": 24}})
    return StoredTree(name, ROOT, "", tree, frozenset({ROOT}), {ROOT: {"VCPU": 8}})


@given(NAMES, NAMES)
def test_names_are_text_and_never_syntax(name, child):
    assume(name != child)
    dot = render_drawing([stored(name, child)])
    assert dot.isascii()
    label = r"(?:[A-Za-z0-9 _.:,?/-]|&#\d+;|\\n|\\\\)+"
    assert re.fullmatch(
        rf'digraph providers {{\n  graph.*\n  node.*\n  p0 \[label="{label}", style="solid"];\n'
        rf'  p1 \[label="{label}", style="dashed"];\n  p0 -> p1;\n}}\n',
        dot,
    )
