import dataclasses
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.devices import PciAddress
from agent.model.facts import Cell, HostFacts, PagePool, Topology, parse_cpu_list
from agent.model.finding import Drift, Problem
from agent.model.names import (
    child_name,
    child_role,
    child_uuid,
    choose_nodes,
    custom_token,
    format_cpu_list,
    is_custom,
    is_token,
    is_unnamed,
    is_uuid,
    name_first,
    normal_uuid,
    number_of,
    printable,
)
from agent.model.operation import EnsureTrait
from agent.model.report import NodeReport, Outcome, exit_code
from drivers.fake.base import DescribedFacts

ROOT = "5f9c2a34-7d1e-4a8b-9c46-000000000001"


@pytest.mark.parametrize(
    "spelling", [ROOT.upper(), ROOT.replace("-", ""), f"{{{ROOT}}}", f"urn:uuid:{ROOT}"]
)
def test_every_spelling_of_a_uuid_has_one_normal_form(spelling):
    assert is_uuid(spelling)
    assert normal_uuid(spelling) == ROOT


@pytest.mark.parametrize("text", ["", "node-a", ROOT[:-1], ROOT + "0", "g" * 32, None, 7])
def test_other_text_is_no_uuid(text):
    assert not is_uuid(text)


def test_what_is_no_uuid_has_no_normal_form():
    with pytest.raises(ValueError):
        normal_uuid("node-a")


def test_a_made_uuid_is_the_same_each_time_and_another_for_each_root_and_role():
    assert child_uuid(ROOT, "node-a_NUMA0") == str(uuid.uuid5(uuid.UUID(ROOT), "node-a_NUMA0"))
    assert child_uuid(ROOT, "node-a_NUMA0") == child_uuid(ROOT.upper(), "node-a_NUMA0")
    assert (
        len({child_uuid(ROOT, "a"), child_uuid(ROOT, "b"), child_uuid(child_uuid(ROOT, "a"), "a")})
        == 3
    )


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("node-a_NUMA0", "_NUMA0"),
        ("node-a-gpu", "-gpu"),
        ("node-a", "node-a"),
        ("node-abc_NUMA0", "node-abc_NUMA0"),
        ("node-a=x", "node-a=x"),
        ("card", "card"),
        ("_NUMA0", "=_NUMA0"),
        ("=x", "==x"),
    ],
)
def test_a_name_says_a_role_and_the_role_gives_the_name_again(name, role):
    assert child_role(name, "node-a") == role
    assert child_name(role, "node-a") == name


@pytest.mark.parametrize("name", ["CUSTOM_A", "CUSTOM__", "CUSTOM_0", "CUSTOM_" + "A" * 248])
def test_a_custom_name(name):
    assert is_custom(name)
    assert is_token(name)


@pytest.mark.parametrize(
    "name",
    [
        "CUSTOM_",
        "VCPU",
        "CUSTOM_a",
        "CUSTOM_A-B",
        "CUSTOM_A\n",
        "XCUSTOM_A",
        "CUSTOM_Ä",
        "CUSTOM_" + "A" * 249,
        "",
    ],
)
def test_no_custom_name(name):
    assert not is_custom(name)


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("VCPU", True),
        ("HW_CPU_X86_AVX2", True),
        ("vcpu", False),
        ("VCPU\n", False),
        ("", False),
        ("A" * 256, False),
    ],
)
def test_the_name_of_a_class_or_trait(name, valid):
    assert is_token(name) is valid


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("gpu-a100", "CUSTOM_GPU_A100"),
        ("rack 7/ä", "CUSTOM_RACK_7__"),
        ("A" * 300, "CUSTOM_" + "A" * 248),
    ],
)
def test_any_text_becomes_a_custom_name(text, token):
    assert custom_token(text) == token
    assert is_custom(token)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("node-a", "node-a"),
        ("größe 7/a&b#c", "größe 7/a&b#c"),
        ("a\nb\tc\x1b[31m", "a\\nb\\tc\\x1b[31m"),
        ("\x85\u2028\u202e", "\\x85\\u2028\\u202e"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_escaped_and_other_text_is_left_alone(text, shown):
    assert printable(text) == shown


@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_printable_text_stays_on_its_line_and_can_be_encoded(text):
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")
    assert printable(shown) == shown


def test_one_is_not_many():
    assert [number_of(count, "claim") for count in (0, 1, 2)] == ["0 claims", "1 claim", "2 claims"]


@pytest.mark.parametrize(
    ("separator", "text"),
    [(", ", "a, b and 3 more"), ("; ", "a; b; and 3 more"), (" ", "a b and 3 more")],
)
def test_of_many_names_the_first_are_named_and_the_others_counted(separator, text):
    assert name_first("abcde", 2, separator) == text
    assert name_first("abcde", 5, separator) == separator.join("abcde")
    assert name_first("", 2, separator) == ""


NODES = {ROOT: "compute-1", "other": "compute-2", "third": "bare"}


@pytest.mark.parametrize(
    ("wanted", "chosen", "unmatched"),
    [
        ((), ["compute-1", "compute-2", "bare"], []),
        (("compute-*",), ["compute-1", "compute-2"], []),
        (("bare", ROOT), ["compute-1", "bare"], []),
        (("nobody", "b?re", "x*"), ["bare"], ["nobody", "x*"]),
        (("Bare",), [], ["Bare"]),
    ],
)
def test_nodes_are_chosen_by_uuid_name_or_pattern(wanted, chosen, unmatched):
    found, missing = choose_nodes(NODES.items(), wanted, lambda node: node)
    assert ([name for _, name in found], missing) == (chosen, unmatched)


@pytest.mark.parametrize(
    ("host", "unnamed"),
    [
        *((name, True) for name in ("localhost", "LOCALHOST.", "localhost4.localdomain4")),
        *((name, True) for name in ("ip6-loopback", "(none)", "::1", "192.0.2.7")),
        *((name, False) for name in ("localhost-17", "node1", "ip-192-0-2-7", "7", "a:b")),
    ],
)
def test_localhost_and_addresses_are_no_names_of_one_host(host: str, *, unnamed: bool) -> None:
    assert is_unnamed(host) == unnamed


# --- more ---


CPUS = st.frozensets(st.integers(0, 4096), max_size=60)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-7,^3,^5-6", {0, 1, 2, 4, 7}),
        ("^3,0-4", {0, 1, 2, 4}),
        ("4", {4}),
        ("4-4", {4}),
        (" 0 - 2 ,, ^ 1 ,", {0, 2}),
        ("0,0,0-1", {0, 1}),
        ("0-3,^9", {0, 1, 2, 3}),
        ("0-1\n", {0, 1}),
    ],
)
def test_a_list_of_cpus(text, cpus):
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "1-2-3", "^", "^^1", "0x1", "1.5", "٣", "1 2", "3;4", "+1"]
)
def test_what_is_no_number_or_range_is_named(text):
    with pytest.raises(ValueError, match="neither a CPU number nor a range") as error:
        parse_cpu_list(f"0-3,{text}")
    assert repr(text) in str(error.value)


def test_a_range_that_runs_backwards_is_refused():
    with pytest.raises(ValueError, match="'7-3' runs backwards"):
        parse_cpu_list("0,7-3")


@pytest.mark.parametrize("text", ["0-1000001", "1000001", "0-99999999999999999999"])
def test_a_number_too_large_for_a_cpu_is_refused_before_the_range_is_built(text):
    with pytest.raises(ValueError, match="above 1000000"):
        parse_cpu_list(text)


@pytest.mark.parametrize("text", ["^1", "1-2,^0-5", ",", " , "])
def test_a_value_that_leaves_no_cpu_is_refused(text):
    with pytest.raises(ValueError, match="leaves no CPU"):
        parse_cpu_list(text)


@pytest.mark.parametrize(
    ("cpus", "text"),
    [(set(), ""), ({8, 0, 1, 2, 3}, "0-3,8"), ({5}, "5"), ({0, 1}, "0-1"), ({0, 2, 4}, "0,2,4")],
)
def test_the_shortest_text_of_a_set(cpus, text):
    assert format_cpu_list(cpus) == text


@given(CPUS)
def test_what_was_written_reads_back(cpus):
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


@given(CPUS, CPUS)
def test_exclusions_apply_to_the_whole_wherever_they_stand(cpus, others):
    excluded = [f"^{cpu}" for cpu in others]
    included = [str(cpu) for cpu in cpus]
    if cpus - others:
        assert parse_cpu_list(",".join([*excluded, *included])) == cpus - others
        assert parse_cpu_list(",".join([*included, *excluded])) == cpus - others


# --- more ---


ADDRESSES = st.builds(
    PciAddress,
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFF),
    st.integers(0, 0x1F),
    st.integers(0, 7),
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:81:00.1", PciAddress(0, 0x81, 0, 1)),
        ("0000:81:1F.7", PciAddress(0, 0x81, 0x1F, 7)),
        ("10000:01:00.0", PciAddress(0x10000, 1, 0, 0)),
        ("FFFFFFFF:ff:1f.7", PciAddress(0xFFFFFFFF, 0xFF, 0x1F, 7)),
    ],
)
def test_an_address(text, address):
    assert PciAddress.parse(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "81:00.1",
        "000:81:00.1",
        "000000000:81:00.1",
        "0000:81:00",
        "0000:81:00.8",
        "0000:81:20.0",
        "0000:8:00.0",
        "0000:81:00.1\n",
        "0000-81-00.1",
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="is not a PCI address"):
        PciAddress.parse(text)


@given(ADDRESSES)
def test_an_address_reads_back(address):
    assert PciAddress.parse(str(address)) == address


def test_addresses_sort_by_place_and_not_by_text():
    assert sorted(map(PciAddress.parse, ["10000:00:00.0", "0000:0a:00.0", "0000:01:00.0"])) == [
        PciAddress(0, 1, 0, 0),
        PciAddress(0, 10, 0, 0),
        PciAddress(0x10000, 0, 0, 0),
    ]


# --- facts and topology of a host ---


FACTS = HostFacts("node-a", 1.0, "QEMU", incomplete={"pci": "the device listing failed"})


@pytest.mark.parametrize(("sockets", "socket"), [({1}, 1), ({0, 1}, None), ((), None), ({0}, 0)])
def test_a_cell_has_a_socket_if_all_its_cpus_are_on_one(sockets, socket):
    assert Cell(0, frozenset({0}), 1, sockets=frozenset(sockets)).socket == socket


@pytest.mark.parametrize(
    ("siblings", "smt"), [([{0, 1}, {2}], True), ([{0}, {1}], False), ([], False)]
)
def test_threads_show_in_the_siblings_of_a_core(siblings, smt):
    cell = Cell(0, frozenset({0, 1, 2}), 1, siblings=tuple(map(frozenset, siblings)))
    assert Topology((Cell(1, frozenset(), 1), cell)).smt is smt


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"taken_at": 2.0}, True),
        ({"memory_mib": 1}, False),
        ({"incomplete": {}}, False),
        ({"providers": ("one",)}, False),
    ],
)
def test_facts_are_compared_without_their_time(change, same):
    facts = DescribedFacts("node-a", 1.0, "QEMU", incomplete={"pci": "the device listing failed"})
    assert facts.same_but_for_time(dataclasses.replace(facts, **change)) is same
    assert not facts.same_but_for_time(FACTS)
    assert not FACTS.same_but_for_time(facts)


def test_cells_that_share_some_cpus_are_one_cell_with_all_that_they_have():
    shared = Topology(
        (
            Cell(
                0, frozenset({0, 1}), 1024, (PagePool(2048, 8, 4),), siblings=(frozenset({0, 1}),)
            ),
            Cell(1, frozenset({1, 2}), 512, (PagePool(2048, 2),), siblings=(frozenset({1, 2}),)),
            Cell(9, frozenset(), 256, sockets=frozenset({1})),
        )
    )
    whole = shared.with_disjoint_cells()
    assert whole.cells == (
        Cell(
            0,
            frozenset({0, 1, 2}),
            1792,
            (PagePool(2048, 10),),
            {0: 10},
            (frozenset({0, 1, 2}),),
            frozenset({1}),
        ),
    )
    assert (whole.shared_by, whole.cell_of(9), whole.with_disjoint_cells()) == ((0, 1, 9), 0, whole)
    apart = Topology((Cell(0, frozenset({0}), 1), Cell(8, frozenset({1}), 1)))
    assert apart.with_disjoint_cells() is apart


# --- more ---


WARNING = Drift("overcommitted", "warning", "too much", "move")
INFO = Drift("foreign-provider", "info", "is kept", "")
ERROR = Problem("x", "wrong", "right")


def node(state, statuses=(), drift=()):
    outcomes = tuple(
        Outcome(EnsureTrait(name="CUSTOM_X", reason=""), status) for status in statuses
    )
    return NodeReport("n", "u", "fake", state, outcomes=outcomes, drift=drift)


SYNC, CHANGED, PENDING, FAILED, REFUSED, DEGRADED = map(
    node, ("in-sync", "changed", "pending", "failed", "refused", "degraded")
)
CASES = {
    "no nodes and no errors": ([], [], 0, 0),
    "in sync": ([SYNC], [], 0, 0),
    "changes are told in detail": ([SYNC, CHANGED], [], 0, 2),
    "changes to come are told in detail": ([SYNC, PENDING], [], 0, 2),
    "drift that only informs": ([node("in-sync", drift=(INFO,))], [], 0, 0),
    "drift that warns is told in detail": ([node("in-sync", drift=(WARNING,))], [], 0, 2),
    "every node failed": ([FAILED], [], 1, 1),
    "every node failed or was refused": ([FAILED, REFUSED], [], 1, 1),
    "some nodes failed": ([FAILED, SYNC], [], 3, 3),
    "some nodes were refused": ([CHANGED, REFUSED], [], 3, 3),
    "some operations failed": ([node("degraded", ["done", "failed", "skipped"])], [], 3, 3),
    "every operation failed": ([node("degraded", ["failed", "skipped"])], [], 1, 1),
    "incomplete facts alone": ([DEGRADED], [], 3, 3),
    "incomplete facts with a plan": ([node("degraded", ["planned"])], [], 3, 3),
    "an error of the run without nodes": ([], [ERROR], 1, 1),
    "an error of the run and a node that failed": ([FAILED], [ERROR], 1, 1),
    "an error of the run and a node that succeeded": ([SYNC], [ERROR], 3, 3),
}


@pytest.mark.parametrize(("nodes", "errors", "code", "detailed"), CASES.values(), ids=CASES)
def test_the_exit_code_says_how_the_run_went(nodes, errors, code, detailed):
    assert exit_code(nodes, errors) == code
    assert exit_code(nodes, errors, detailed=True) == detailed
