import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from agent.model.finding import Problem
from agent.model.operation import SetTraits
from agent.model.provider_tree import ProviderTree
from agent.model.report import Outcome
from agent.render.document import render_problems
from agent.render.look import Look
from agent.render.text import render_report, render_trees
from tests.unit.render.reports import CELL, CONSUMER, ELSEWHERE, ROOT, node, report, stored

PLAIN = Look()
AMOUNTS = re.compile(r"\d \s+\d+\.\d$")


def lines(**changes):
    return render_report(report(**changes), PLAIN).splitlines()


def test_tree_comes_before_operations_before_drift_before_errors_before_the_closing_line():
    text = render_report(report(errors=(Problem("x", "all is lost", ""),)), PLAIN)
    places = [
        text.index(part)
        for part in (
            "node-1_NUMA0",
            "operations\n",
            "drift\n",
            "errors\n",
            "all is lost",
            "1 node (",
        )
    ]
    assert places == sorted(places)


def test_numbers_of_all_levels_stand_in_one_column():
    table = [line for line in lines() if AMOUNTS.search(line)]
    assert len(table) == 3
    heading = next(line for line in lines() if "on record" in line)
    assert {len(line) for line in table} == {len(heading)}


@pytest.mark.parametrize(
    "line",
    [
        "+ CUSTOM_GOLD trait — the driver wants it",
        "+ node-1_NUMA0 created below node-1 — new cell",
        "~ node-1 name: old-1 → node-1 — renamed",
        "~ node-1_NUMA0 parent: none → node-1 — moved",
        (
            "⇄ reshape with 1 consumer of node-1 (-PCPU), node-1_NUMA0 (+PCPU 24) — PCPU belongs "
            "to the cell"
        ),
        (
            f"- {CONSUMER} allocations: MEMORY_MB 2048, VCPU 2 of node-1; PCPU 1 of node-1_NUMA0 — "
            "the instance is deleted"
        ),
        (
            f"~ {CONSUMER} allocations: VCPU 2 of node-1; VCPU 2 of {ELSEWHERE} → VCPU 2 of "
            f"{ELSEWHERE} — it was evacuated"
        ),
        "~ node-1 inventory: -FPGA; +PCPU 24; VCPU total 32 → 64, reserved 0 → 2 — facts differ",
        r"~ node-1 traits: +NEW -OLD — facts differ ✗ failed: 409 from\nPlacement",
        "~ node-1 aggregates: +aaaaaaaa-9b1d-4a9c-8a0e-0d6b6c1f7a11 — shares (skipped)",
        "- node-1_NUMA1 provider with PCPU — cell is gone",
    ],
)
def test_each_operation_is_one_line(line):
    assert line in lines()


def test_names_are_neither_markup_nor_control_codes():
    made = ProviderTree()
    made.new_root("[red]\x1b[31m\nevil[/red]", ROOT)
    text = render_report(report(nodes=(node(name="[bold]\x07", tree=made, outcomes=()),)), PLAIN)
    assert r"[red]\x1b[31m\nevil[/red]" in text
    assert r"[bold]\x07" in text
    assert "\x1b" not in text


def test_colour_when_asked_for():
    coloured = render_report(report(), Look(width=300, colour=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render_report(report(), Look(width=300))


def test_ascii_where_the_stream_carries_nothing_else():
    text = render_report(report(), Look(unicode=False))
    assert text.isascii()
    assert "|- node-1_NUMA0" in text
    assert "total 32 -> 64" in text


def test_lines_stay_whole_without_a_terminal():
    long = "far " * 100
    text = lines(nodes=(node(errors=(Problem("x", long.strip(), ""),)),))
    assert f"✗ {long.strip()} [x]" in text


@pytest.mark.parametrize("width", [1, 20, 40, 80, 200])
def test_operations_fit_every_terminal(width):
    text = render_report(report(nodes=(node(tree=ProviderTree()),)), Look(width=width))
    operations = text[text.index("operations\n") : text.index("drift\n")].splitlines()
    assert max(map(len, operations)) <= max(width, 24)


def test_of_many_traits_the_count_is_shown_and_what_became_of_them():
    traits, tree = [f"CUSTOM_{number}" for number in range(7)], node().tree.copy()
    tree.update_traits(ROOT, traits)
    assert "  7 traits" in render_trees([stored(tree)], PLAIN)
    assert "CUSTOM_0" not in render_trees([stored(tree)], PLAIN)
    assert "  ".join(traits) in render_trees([stored(tree)], Look(wide=True))
    changed = SetTraits(
        provider=tree.provider(ROOT),
        old=frozenset(["CUSTOM_OLD", *traits[1:]]),
        new=frozenset(traits),
        reason="missing in Placement",
    )
    made = replace(node(), tree=tree.freeze(), outcomes=[Outcome(changed, "done")])
    assert "7 traits  +CUSTOM_0  -CUSTOM_OLD\n" in render_report(report(nodes=(made,)), PLAIN)
    first = replace(changed, old=frozenset())
    assert "7 traits  7 added\n" in render_report(
        report(nodes=(replace(made, outcomes=[Outcome(first, "done")]),)), PLAIN
    )


def test_traits_are_wrapped_under_their_guide():
    made = node().tree.copy()
    made.update_traits(ROOT, [f"CUSTOM_TRAIT_{number:02}" for number in range(40)])
    rows = [
        line
        for line in render_trees([stored(made)], Look(width=60, wide=True)).splitlines()
        if "CUSTOM_TRAIT" in line
    ]
    assert len(rows) > 5
    assert all(line.startswith("│  CUSTOM") and len(line) <= 60 for line in rows)


def test_wide_characters_do_not_break_the_columns():
    made = node().tree.copy()
    made.update_inventory(CELL, {"PCPU": {"total": 1}})
    made.rename(CELL, "細胞")
    table = [
        line for line in render_trees([stored(made)], PLAIN).splitlines() if AMOUNTS.search(line)
    ]
    assert len({cell_len(line) for line in table}) == 1


def test_many_nodes_are_a_table_and_only_those_with_something_to_tell_follow():
    quiet = [
        replace(node(state="in-sync", outcomes=(), drift=(), errors=()), name=f"quiet-{number}")
        for number in range(20)
    ]
    text = render_report(report(nodes=(*quiet, node())), PLAIN)
    assert "on record" not in text
    assert len([line for line in text.splitlines() if line.startswith("✓ quiet-")]) == 20
    assert text.count("! node-1") == 2
    assert "~ node-1 name: old-1 → node-1 — renamed" in text
    assert text.splitlines()[-1].startswith("21 nodes (20 in-sync, 1 degraded)")


def test_of_very_many_nodes_only_those_with_something_to_tell_have_a_row_and_those_with_errors_come_first():
    quiet = [
        replace(node(state="in-sync", outcomes=(), drift=(), errors=()), name=f"quiet-{number}")
        for number in range(200)
    ]
    new = [replace(node(errors=(), drift=()), name=f"new-{number}") for number in range(120)]
    text = render_report(report(nodes=(*quiet, *new, node())), PLAIN)
    assert "quiet-" not in text
    rows = [line for line in text.splitlines() if line.startswith("! new-") and "numa" not in line]
    assert text.index("! node-1") < text.index("! new-0")
    assert "and 221 more nodes: choose some with --node, or see all with --format json" in text
    assert (
        "and 71 more nodes, with operations, drift or errors: choose some with --node, or see all "
        "with --format json"
    ) in text
    assert len(rows) == 99 + 49
    assert text.splitlines()[-1].startswith("321 nodes (200 in-sync, 121 degraded)")


def test_errors_alone():
    assert (
        render_problems([Problem("config.invalid", "bad\tvalue", "fix it")], PLAIN)
        == "✗ bad\\tvalue [config.invalid]\n  → fix it\n"
    )


def test_the_ways_of_a_remedy_are_lines_and_its_commands_are_never_broken_within():
    remedy = (
        "if nova's record (a row; any) is there: virsh destroy a && agent allocation delete "
        'aaaaaaaa-1111-2222-3333-444444444444; printf %s \'{"a": "; "}\' | agent x; else\x1b: wait'
    )
    for look in (PLAIN, Look(width=40)):
        text = render_problems([Problem("x", "y", remedy)], look)
        assert (
            "      virsh destroy a &&\n"
            "      agent allocation delete aaaaaaaa-1111-2222-3333-444444444444\n"
            '    printf %s \'{"a": "; "}\' | agent x\n'
            "    else\\x1b: wait\n"
        ) in text
