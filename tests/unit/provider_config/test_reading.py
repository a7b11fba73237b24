"""Files that are valid, and what is wrong with those that are not."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ConfigErrors
from agent.model.inventory import DEFAULTS, problems
from agent.model.names import is_custom, is_uuid, printable
from agent.provider_config.applying import COMPUTE_NODE, Entry, Key, ProviderConfig
from agent.provider_config.reading import _read_file, read_folder
from agent.yaml_files import TextPosition
from tests.unit.provider_config.reading import (
    META,
    NODE,
    entry,
    inventory,
    read,
    refused,
    told,
    warned,
)
from tests.unit.store.ordinary_user import as_ordinary_user

MAX = 2147483647
RECORD = {"reserved": 0, "min_unit": 1, "max_unit": MAX, "step_size": 1, "allocation_ratio": 1.0}
A = frozenset({"CUSTOM_A"})

WHOLE = """\
meta:
  schema_version: '1.0'
  author: somebody
providers:
  - identification:
      uuid: $COMPUTE_NODE
    inventories:
      additional:
        - CUSTOM_LICENSE_A: {total: 20, reserved: 2, min_unit: 1, max_unit: 5, step_size: 1, allocation_ratio: 1.5}
        - CUSTOM_LICENSE_B: {total: 3}
          CUSTOM_LICENSE_C: {total: 4, allocation_ratio: .5}
    traits:
      additional: [CUSTOM_RACK_7, CUSTOM_GOLD, CUSTOM_GOLD]
  - identification: {name: "päd dock"}
    traits: {additional: [CUSTOM_A]}
"""


def test_entries_are_complete_and_know_where_they_are_written(tmp_path: Path) -> None:
    first, second = read(tmp_path, a=WHOLE).entries
    file = str(tmp_path / "a.yaml")
    records = {
        "CUSTOM_LICENSE_A": {
            "total": 20,
            "reserved": 2,
            "min_unit": 1,
            "max_unit": 5,
            "step_size": 1,
            "allocation_ratio": 1.5,
        },
        "CUSTOM_LICENSE_B": {**RECORD, "total": 3},
        "CUSTOM_LICENSE_C": {**RECORD, "total": 4, "allocation_ratio": 0.5},
    }
    assert first == Entry(
        Key("uuid", "$COMPUTE_NODE"),
        file,
        TextPosition(5, 5),
        records,
        frozenset({"CUSTOM_RACK_7", "CUSTOM_GOLD"}),
    )
    assert second == Entry(Key("name", "päd dock"), file, TextPosition(14, 5), {}, A)


def test_files_are_read_in_the_order_of_their_names_and_hidden_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / ".hidden.yaml").write_text("no: yaml: at all")
    (tmp_path / "9.yml").write_text(entry("{name: third}"))
    config = read(tmp_path, **{"20": entry("{name: second}"), "10": entry("{name: first}")})
    assert [one.key.value for one in config.entries] == ["first", "second", "third"]
    assert [Path(file).name for file in config.files] == ["10.yaml", "20.yaml", "9.yml"]


def test_what_is_not_read_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "10.yaml.bak").write_text("")
    (tmp_path / "more").mkdir()
    remedy = "(call it *.yaml if it is to be read, or put it elsewhere)"
    assert warned(read(tmp_path)) == [
        f"10.yaml.bak: is not read {remedy}",
        f"more: is not read {remedy}",
    ]


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("nowhere")
    (tmp_path / "b.yaml").mkdir()
    os.mkfifo(tmp_path / "c.yaml")
    (tmp_path / "d.yaml").write_bytes(b"#" * (1024 * 1024 + 1))
    assert [line.partition(" (")[0] for line in told(tmp_path, e=entry("{name: x}", ""))] == [
        "a.yaml: cannot be read: No such file or directory",
        "b.yaml: cannot be read: Is a directory",
        "c.yaml: is not a regular file",
        "d.yaml: is larger than 1048576 bytes",
    ]


def closed(folder: Path) -> None:
    (folder / "files").mkdir()
    (folder / "files" / "a.yaml").touch(0)
    (folder / "closed").mkdir(0)


def test_what_the_agent_may_not_read_is_refused_with_the_reason() -> None:
    def attempt(folder: Path) -> str:
        return " | ".join(
            str(error) for name in ("files", "closed") for error in refused(folder / name)
        ).replace(f"{folder}/", "")

    assert as_ordinary_user(attempt, closed) == (
        "files/a.yaml: cannot be read: Permission denied (check the permissions: the agent has to "
        "read the folder and its files) | closed: the folder of [compute] "
        "provider_config_location cannot be read: Permission denied (check the permissions: the "
        "agent has to read the folder and its files)"
    )


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (error,) = refused(tmp_path / "file")
    assert error.message == (
        f"{tmp_path}/file: the folder of [compute] provider_config_location cannot be read: Not a "
        "directory"
    )


def test_no_providers_are_none_and_an_empty_list_is_warned_of(tmp_path: Path) -> None:
    config = read(tmp_path, a=META, b=META + "providers: []", c=META + "providers:")
    assert config.entries == ()
    assert warned(config) == [
        (
            "c.yaml:2:1: providers: is empty, so that the file adds nothing (write [] for no "
            "providers, or remove the key)"
        )
    ]


@pytest.mark.parametrize("entries", ["{name: c1}", f"{{uuid: {NODE}}}", "{uuid: $COMPUTE_NODE}"])
def test_the_same_provider_in_two_files_and_twice_in_one_is_refused(
    tmp_path: Path, entries: str
) -> None:
    twice = entry(entries) + entry(entries).removeprefix(META).removeprefix("providers:\n")
    key = entries.strip("{}").replace(":", "")
    assert told(tmp_path, a=twice, b=entry(entries)) == [
        f"a.yaml:5:3: there is another entry for {key}, in a.yaml:3:3 (keep one of them)",
        f"b.yaml:3:3: there is another entry for {key}, in a.yaml:3:3 (keep one of them)",
    ]


def test_a_uuid_in_another_spelling_is_the_same_uuid(tmp_path: Path) -> None:
    (error,) = told(tmp_path, a=entry(f"{{uuid: {NODE}}}"), b=entry(f"{{uuid: {NODE.upper()}}}"))
    assert (
        error
        == f"b.yaml:3:3: there is another entry for uuid {NODE}, in a.yaml:3:3 (keep one of them)"
    )


def test_standard_classes_and_traits_are_refused_by_name(tmp_path: Path) -> None:
    text = entry(
        "{name: c1}",
        (
            "inventories: {additional: [VCPU: {total: 1}, DISK_GB: {total: 1}]}\n  traits: "
            "{additional: [HW_CPU_X86_AVX, CUSTOM_A]}"
        ),
    )
    assert told(tmp_path, a=text) == [
        "a.yaml:4:17: providers[0].inventories.additional: name c1: not custom resource classes: "
        "DISK_GB, VCPU (only resource classes whose names begin with CUSTOM_ can be added; others "
        "are the driver's)",
        "a.yaml:5:12: providers[0].traits.additional: name c1: not custom traits: HW_CPU_X86_AVX "
        "(only traits whose names begin with CUSTOM_ can be added; others are the driver's)",
    ]


@pytest.mark.parametrize("name", ["CUSTOM_PCI_8086_1533", "CUSTOM_PMEM_NAMESPACE_4GB"])
def test_classes_that_the_agent_itself_gives_are_refused(tmp_path: Path, name: str) -> None:
    (error,) = told(tmp_path, a=inventory(f"[{name}: {{total: 1}}]"))
    assert error.endswith(
        f"resource classes that only the agent itself gives: {name} (choose another name)"
    )


def test_the_mark_of_an_agent_s_nodes_is_refused(tmp_path: Path) -> None:
    (error,) = told(
        tmp_path, a=entry("{name: c1}", "traits: {additional: [CUSTOM_COMPUTE_NODE_AGENT_X]}")
    )
    assert error.endswith(
        "traits that only the agent itself gives: CUSTOM_COMPUTE_NODE_AGENT_X (choose another name)"
    )


def test_a_prefix_alone_is_no_name(tmp_path: Path) -> None:
    text = entry(
        "{name: c1}",
        "inventories: {additional: [CUSTOM_: {total: 1}]}\n  traits: {additional: [CUSTOM_]}",
    )
    assert [line.partition(": name c1: ")[2] for line in told(tmp_path, a=text)] == [
        "CUSTOM_ alone is no name (let a name follow it)"
    ] * 2


@pytest.mark.parametrize(
    ("record", "wrong"),
    [
        ("{total: -3}", ".total: is -3 (write a whole number from 1 to 2147483647)"),
        ("{total: 0}", ".total: is 0 (write a whole number from 1 to 2147483647)"),
        (
            "{total: 4.0}",
            ": total is 4.0, not a whole number from 1 to 2147483647 (correct the amounts)",
        ),
        (
            "{total: 4.5}",
            ".total: is 4.5, not a whole number (write a whole number from 1 to 2147483647)",
        ),
        (
            "{total: 2147483648}",
            ".total: is 2147483648 (write a whole number from 1 to 2147483647)",
        ),
        (
            "{total: true}",
            ".total: is true, not a whole number (write a whole number from 1 to 2147483647)",
        ),
        (
            "{total: '4'}",
            ".total: is '4', not a whole number (write a whole number from 1 to 2147483647)",
        ),
        ("{total: 20, reserved: 30}", ": reserved 30 is above total 20 (correct the amounts)"),
        (
            "{total: 20, reserved: -1}",
            ".reserved: is -1 (write a whole number from 0 to 2147483647)",
        ),
        ("{total: 20, min_unit: 0}", ".min_unit: is 0 (write a whole number from 1 to 2147483647)"),
        (
            "{total: 20, min_unit: 6, max_unit: 5}",
            ": min_unit 6 is above max_unit 5 (correct the amounts)",
        ),
        (
            "{total: 20, step_size: 6, max_unit: 5}",
            ": step_size 6 is above max_unit 5 (correct the amounts)",
        ),
        (
            "{total: 20, allocation_ratio: 0}",
            ".allocation_ratio: is 0 (write a number above 0, up to 3.40282e38)",
        ),
        (
            "{total: 20, allocation_ratio: -1.5}",
            ".allocation_ratio: is -1.5 (write a number above 0, up to 3.40282e38)",
        ),
        (
            "{total: 20, allocation_ratio: 1.0e999}",
            ".allocation_ratio: is inf (write a number above 0, up to 3.40282e38)",
        ),
        (
            "{total: 20, allocation_ratio: .nan}",
            ".allocation_ratio: is '.nan', not a number (write a number above 0, up to 3.40282e38)",
        ),
        ("{reserved: 3}", ": lacks total (add total)"),
        ("{total: 3, totals: 4}", ".totals: is an unknown key (did you mean total?)"),
        (
            "5",
            ": is 5, not a mapping (write a mapping with total and, where they differ from "
            "Placement's defaults, reserved, min_unit, max_unit, step_size and allocation_ratio)",
        ),
    ],
)
def test_impossible_amounts_are_refused(tmp_path: Path, record: str, wrong: str) -> None:
    (error,) = told(tmp_path, a=inventory(f"[CUSTOM_A: {record}]"))
    place, _, message = error.partition(": ")
    assert place.startswith("a.yaml:5:")
    assert message == f"providers[0].inventories.additional[0].CUSTOM_A{wrong}"


def test_the_same_class_twice_is_refused(tmp_path: Path) -> None:
    assert told(
        tmp_path, a=inventory("\n    - CUSTOM_A: {total: 3}\n    - CUSTOM_A: {total: 5}")
    ) == [
        (
            "a.yaml:7:7: providers[0].inventories.additional[1].CUSTOM_A: the class is here twice, "
            "first in line 6 (keep one of them)"
        )
    ]


FIRST = "let the file begin with the line   meta: {schema_version: '1.0'}"
QUOTED = "write the version in quotes: '1.0'"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            "meta: {schema_version: 1.0}",
            f"a.yaml:1:8: meta.schema_version: is 1.0, not text ({QUOTED})",
        ),
        (
            "meta: {schema_version: 'abc'}",
            f"a.yaml:1:8: meta.schema_version: is 'abc', not a version ({QUOTED})",
        ),
        (
            "meta: {schema_version: '1'}",
            f"a.yaml:1:8: meta.schema_version: is '1', not a version ({QUOTED})",
        ),
        (
            "meta: {schema_version: '01.0'}",
            f"a.yaml:1:8: meta.schema_version: is '01.0', not a version ({QUOTED})",
        ),
        (
            "meta: {schema_version: '2.0'}",
            (
                "a.yaml:1:8: meta.schema_version: is '2.0', which is not supported here "
                "(supported: 1.N, known up to 1.0)"
            ),
        ),
        (
            "meta: {schema_version: '0.9'}",
            (
                "a.yaml:1:8: meta.schema_version: is '0.9', which is not supported here "
                "(supported: 1.N, known up to 1.0)"
            ),
        ),
        ("", f"a.yaml:1:1: is empty, not a mapping ({FIRST})"),
        ("# only a comment", f"a.yaml:1:1: is empty, not a mapping ({FIRST})"),
        ("- a", f"a.yaml:1:1: is a list, not a mapping ({FIRST})"),
        ("text", f"a.yaml:1:1: is 'text', not a mapping ({FIRST})"),
        ("providers: []", f"a.yaml:1:1: lacks meta ({FIRST})"),
        ("meta: {}", f"a.yaml:1:1: meta: lacks schema_version ({FIRST})"),
        ("meta: 1.0", f"a.yaml:1:1: meta: is 1.0, not a mapping ({FIRST})"),
    ],
)
def test_a_file_of_no_version_or_of_one_that_is_not_known_is_refused(
    tmp_path: Path, text: str, wrong: str
) -> None:
    assert told(tmp_path, a=text) == [wrong]


def test_what_else_is_wrong_with_a_file_without_a_version_is_told_too(tmp_path: Path) -> None:
    assert (
        len(
            told(
                tmp_path, a="meta: {schema_version: 1.0}\nproviders: [{identification: {id: x}}, 5]"
            )
        )
        == 3
    )


def test_a_newer_minor_version_is_warned_of_and_what_is_new_in_it_ignored(
    tmp_path: Path,
) -> None:
    text = entry(
        "{name: c1, realm: x}",
        "inventories: {additional: [CUSTOM_A: {total: 3, burst: 4}], removed: [VCPU]}",
    ).replace("1.0", "1.7")
    config = read(tmp_path, a=text + "policy: {}\n")
    assert config.entries[0].inventories == {"CUSTOM_A": {**RECORD, "total": 3}}
    assert warned(config) == [
        "a.yaml:1:8: meta.schema_version: is 1.7, newer than 1.0, which is known here; ignored: "
        "providers[0].identification.realm, "
        "providers[0].inventories.additional[0].CUSTOM_A.burst, providers[0].inventories.removed, "
        "policy (upgrade the agent, or write for 1.0)"
    ]


def test_a_misspelled_key_is_warned_of_and_so_is_the_entry_that_adds_nothing(
    tmp_path: Path,
) -> None:
    config = read(
        tmp_path, a=entry("{name: c1}", "inventory: {additional: [CUSTOM_A: {total: 3}]}")
    )
    assert config.entries == ()
    assert warned(config) == [
        (
            "a.yaml:3:3: providers[0]: name c1: adds nothing and is left out (give it inventories "
            "or traits, or remove it)"
        ),
        (
            "a.yaml:4:3: providers[0].inventory: is an unknown key, and ignored with all below it "
            "(did you mean inventories?)"
        ),
    ]


ONE = "write exactly one of uuid and name"


@pytest.mark.parametrize(
    ("identification", "wrong"),
    [
        (
            f"{{uuid: {NODE}, name: c1}}",
            [f"providers[0].identification: has name and uuid ({ONE})"],
        ),
        ("{}", [f"providers[0].identification: is empty ({ONE})"]),
        ("", [f"providers[0].identification: is empty, not a mapping ({ONE})"]),
        ("{id: x}", ["providers[0].identification.id: is an unknown key (did you mean uuid?)"]),
    ],
)
def test_an_entry_names_its_provider_in_exactly_one_way(
    tmp_path: Path, identification: str, wrong: list[str]
) -> None:
    assert [line.partition(": ")[2] for line in told(tmp_path, a=entry(identification))] == wrong


def test_an_entry_without_identification_is_refused(tmp_path: Path) -> None:
    text = META + "providers:\n- traits: {additional: [CUSTOM_A, VCPU]}"
    assert [line.partition(" (")[0] for line in told(tmp_path, a=text)] == [
        "a.yaml:3:3: providers[0]: lacks identification",
        "a.yaml:3:12: providers[0].traits.additional: not custom traits: VCPU",
    ]


def test_the_default_may_be_written_as_a_name_with_a_warning(tmp_path: Path) -> None:
    found = read(tmp_path, a=entry("{name: $COMPUTE_NODE}"))
    assert [one.key for one in found.entries] == [Key("uuid", "$COMPUTE_NODE")]
    assert warned(found) == [
        (
            "a.yaml:3:20: providers[0].identification.name: is $COMPUTE_NODE, and taken as the "
            "uuid that stands for every node (write uuid: $COMPUTE_NODE)"
        )
    ]


def test_the_default_is_there_once_however_it_is_written(tmp_path: Path) -> None:
    (error,) = told(tmp_path, a=entry("{name: $COMPUTE_NODE}"), b=entry("{uuid: $COMPUTE_NODE}"))
    assert "there is another entry for uuid $COMPUTE_NODE" in error


@pytest.mark.parametrize(
    "uuid",
    ["5f9c2a34", NODE.replace("-", ""), f"{{{NODE}}}", "$COMPUTE_NODES", "''", f'"{NODE}\\n"'],
)
def test_uuids_in_other_forms_are_refused(tmp_path: Path, uuid: str) -> None:
    assert all(
        "providers[0].identification.uuid: " in line
        for line in told(tmp_path, a=entry(f"{{uuid: {uuid}}}"))
    )


@pytest.mark.parametrize("name", ["''", "x" * 201, "12345", "null", "[a]"])
def test_impossible_names_are_refused(tmp_path: Path, name: str) -> None:
    (error,) = told(tmp_path, a=entry(f"{{name: {name}}}"))
    assert "providers[0].identification.name: is " in error
    assert error.endswith(
        "(write the provider's name, 1 to 200 characters, in quotes if it looks like a number)"
    )


def test_a_trait_in_lower_case_is_refused(tmp_path: Path) -> None:
    (error,) = told(tmp_path, a=entry("{name: c1}", "traits: {additional: [custom_a]}"))
    assert error == (
        "a.yaml:4:25: providers[0].traits.additional[0]: is 'custom_a' (write a trait of 1 to 255 "
        "of A-Z, 0-9 and _, such as CUSTOM_RACK_7)"
    )


def test_a_class_in_lower_case_is_refused(tmp_path: Path) -> None:
    (error,) = told(tmp_path, a=inventory("[custom_a: {total: 1}]"))
    assert "providers[0].inventories.additional[0].custom_a: cannot be a key here" in error


def test_control_characters_are_refused_and_shown_escaped(tmp_path: Path) -> None:
    (error,) = told(tmp_path, a=entry('{name: "x\\nERROR"}'))
    assert error.startswith(
        "a.yaml:3:26: providers[0].identification.name: 'x\\nERROR' has a control character"
    )


def test_the_key_that_another_implementation_uses_for_itself_is_refused(tmp_path: Path) -> None:
    (error,) = told(
        tmp_path, a=entry("{name: c1}", "__source_file: x\n  traits: {additional: [CUSTOM_A]}")
    )
    assert "providers[0].__source_file: is not allowed here" in error


def test_anchors_aliases_and_merges_are_allowed(tmp_path: Path) -> None:
    text = f"""{META}x: &licence {{total: 3, reserved: 1}}
providers:
- identification: {{name: c1}}
  inventories:
    additional: &all [CUSTOM_A: *licence, CUSTOM_B: {{<<: *licence, total: 5}}]
- identification: {{name: c2}}
  inventories: {{additional: *all}}
"""
    config = read(tmp_path, a=text)
    records = {
        "CUSTOM_A": {**RECORD, "total": 3, "reserved": 1},
        "CUSTOM_B": {**RECORD, "total": 5, "reserved": 1},
    }
    assert [one.inventories for one in config.entries] == [records, records]


def test_tags_are_refused(tmp_path: Path) -> None:
    (error,) = told(tmp_path, a=META + "providers: !!python/object:os.system []")
    assert error == (
        "a.yaml:2:12: the tag tag:yaml.org,2002:python/object:os.system is not allowed here "
        "(correct the YAML)"
    )


def test_broken_yaml_is_told_with_line_and_column(tmp_path: Path) -> None:
    (error,) = refused(tmp_path, a=META + "providers: [a,\n  b: }")
    assert (error.data["line"], error.data["column"]) == (3, 6)
    assert error.message.startswith(f"{tmp_path}/a.yaml:3:6: ")


def test_a_repeated_key_is_refused(tmp_path: Path) -> None:
    (error,) = told(tmp_path, a=META + "providers: []\nproviders: []")
    assert (
        error == "a.yaml:3:1: providers: the key is here twice, first in line 2 (keep one of them)"
    )


def test_all_errors_of_all_files_come_at_once_in_order(tmp_path: Path) -> None:
    lines = told(
        tmp_path,
        a=entry("{name: c1}", "traits: {additional: [x, VCPU]}"),
        b="[",
        c=b"\xff",
        d=inventory("[CUSTOM_A: {total: x}]"),
        e=entry("{name: c1}"),
    )
    assert [line.split(": ")[0] for line in lines] == [
        "a.yaml:4:12",
        "a.yaml:4:25",
        "b.yaml:1:2",
        "c.yaml:1:1",
        "d.yaml:5:29",
        "e.yaml:3:3",
    ]


@pytest.mark.long
def test_more_entries_than_anybody_needs_are_refused(tmp_path: Path) -> None:
    many = (
        META
        + "providers: ["
        + ", ".join(f"{{identification: {{name: p{number}}}}}" for number in range(10_001))
        + "]"
    )
    (error,) = told(tmp_path, a=many)
    assert error.endswith(": 10001 entries in all, and 10000 are allowed (name fewer providers)")


def test_an_error_has_its_place_as_data(tmp_path: Path) -> None:
    (error,) = refused(tmp_path, a=inventory("[CUSTOM_A: {total: -3}]"))
    path = "providers[0].inventories.additional[0].CUSTOM_A.total"
    assert (error.code, error.data) == (
        "config.invalid",
        {"file": str(tmp_path / "a.yaml"), "line": 5, "column": 29, "path": path},
    )


def test_the_example_in_the_documentation_is_right() -> None:
    config = read_folder(Path(__file__).parents[3] / "etc" / "provider_config")
    assert [(one.key.by, len(one.inventories), len(one.traits)) for one in config.entries] == [
        ("uuid", 0, 1),
        ("name", 2, 2),
        ("uuid", 0, 1),
    ]
    assert config.warnings == ()


# --- whatever a file holds, it is read or refused with a list of what is wrong; and what is right comes back as it was written ---


KEYS = [
    "meta",
    "schema_version",
    "providers",
    "identification",
    "uuid",
    "name",
    "inventories",
    "traits",
    "additional",
    "__source_file",
    "<<",
    "total",
    "reserved",
    "min_unit",
    "max_unit",
    "step_size",
    "allocation_ratio",
    "CUSTOM_A",
    "VCPU",
    "CUSTOM_PCI_1",
    "CUSTOM_",
    "x\n",
]
UUID = "5f9c2a34-7d1e-4a8b-9c46-00000000000A"
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=2),
    st.dates(),
    st.sampled_from(
        [
            "1.0",
            "1.7",
            "2.0",
            UUID,
            UUID.lower(),
            UUID + "\n",
            COMPUTE_NODE,
            "c1",
            "CUSTOM_A",
            "CUSTOM_B\n",
            "CUSTOM_",
            "HW_CPU_X86_AVX",
        ]
    ),
)
anything = st.recursive(
    scalars,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(KEYS), one, max_size=4),
    max_leaves=12,
)


def often(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What is right three times of four, so that what is wrong is also found deep inside."""
    return st.one_of(right, right, right, anything)


tokens = st.sampled_from(["CUSTOM_A", "CUSTOM_B", "CUSTOM_PCI_1", "VCPU", "custom_c", "CUSTOM_A\n"])
amounts = often(st.integers(-1, 30))
records = often(
    st.dictionaries(st.sampled_from(["total", *DEFAULTS, "other"]), amounts, max_size=6)
)
lists = {
    "inventories": often(st.lists(often(st.dictionaries(tokens, records, max_size=2)), max_size=3)),
    "traits": often(st.lists(often(tokens), max_size=3)),
}
parts = {
    name: often(st.fixed_dictionaries({}, optional={"additional": one, "additionals": one}))
    for name, one in lists.items()
}
uuids, names = (
    often(st.sampled_from([UUID, UUID.lower(), COMPUTE_NODE])),
    often(st.sampled_from(["c1", "c2", COMPUTE_NODE, ""])),
)
identifications = often(
    st.one_of(
        *(
            st.fixed_dictionaries(one)
            for one in ({"uuid": uuids}, {"name": names}, {"uuid": uuids, "name": names})
        )
    )
)
entries = often(
    st.fixed_dictionaries(
        {"identification": identifications}, optional={**parts, "trait": parts["traits"]}
    )
)
metas = often(st.fixed_dictionaries({"schema_version": often(st.sampled_from(["1.0", "1.1"]))}))
documents = often(
    st.fixed_dictionaries(
        {"meta": metas},
        optional={"providers": often(st.lists(entries, max_size=4)), "more": anything},
    )
)


def is_sound(config: ProviderConfig) -> None:
    keys = [one.key for one in config.entries]
    assert len(set(keys)) == len(keys)
    for one in config.entries:
        assert one.inventories or entry.traits
        assert 1 <= len(one.key.value) <= 200
        assert (
            one.key.by == "name"
            or one.key.is_default
            or (is_uuid(one.key.value) and one.key.value == one.key.value.lower())
        )
        for name, record in entry.inventories.items():
            assert is_custom(name)
            assert not list(problems(name, record))
        assert all(map(is_custom, entry.traits))


def is_read_or_refused(*contents: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate(contents):
            (Path(folder) / f"{number}.yaml").write_bytes(content)
        try:
            config = read_folder(Path(folder))
        except ConfigErrors as several:
            told = several.errors
            assert told
        else:
            is_sound(config)
            told = config.warnings
        for one in told:
            assert printable(str(one)) == str(one)
            assert one.remedy
            assert one.message.startswith(f"{folder}/")


@given(
    st.binary(max_size=60)
    | st.text(alphabet="a1:-[]{}&*!<'\"#|>%@`,? \n\tµ", max_size=60).map(str.encode)
)
def test_any_bytes(content: bytes) -> None:
    is_read_or_refused(content)


@settings(deadline=None)
@given(st.lists(documents, min_size=1, max_size=2), st.booleans())
def test_any_document_that_yaml_can_write(found: list[Any], sort: bool) -> None:
    is_read_or_refused(
        *(
            yaml.dump(one, allow_unicode=True, sort_keys=sort).encode("utf-8", "replace")
            for one in found
        )
    )


@settings(deadline=None)
@given(documents, st.data())
def test_any_document_with_a_part_cut_out_or_repeated(found: Any, data: st.DataObject) -> None:
    text = yaml.dump(found, allow_unicode=True).encode("utf-8", "replace")
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    is_read_or_refused(text[:start] + text[end:], text[:end] + text[start:])


good_letters = st.characters(codec="utf-8", exclude_categories=["C", "Z"])
good_names = st.text(good_letters, min_size=1, max_size=20).filter(
    lambda name: printable(name) == name != COMPUTE_NODE
)
good_tokens = st.from_regex(r"CUSTOM_[A-OQ-Z0-9_]{1,5}", fullmatch=True).filter(
    lambda name: not name.startswith("CUSTOM_COMPUTE")
)
good_records = st.fixed_dictionaries(
    {"total": st.integers(10, 2**31 - 1)},
    optional={
        "reserved": st.integers(0, 10),
        "min_unit": st.integers(1, 5),
        "max_unit": st.integers(5, 9),
        "step_size": st.integers(1, 5),
        "allocation_ratio": st.floats(0.01, 100),
    },
)
good_contents = st.tuples(
    st.dictionaries(good_tokens, good_records, max_size=3),
    st.sets(good_tokens, min_size=1, max_size=3),
)


@settings(deadline=None)
@given(st.dictionaries(good_names, good_contents, max_size=4))
def test_what_is_right_comes_back_as_it_was_written(
    wanted: dict[str, tuple[dict[str, Any], set[str]]],
) -> None:
    providers = [
        {
            "identification": {"name": name},
            "traits": {"additional": sorted(traits)},
            "inventories": {"additional": [{one: record} for one, record in inventories.items()]},
        }
        for name, (inventories, traits) in wanted.items()
    ]
    found = _read_file(
        json.dumps(
            {"meta": {"schema_version": "1.0"}, "providers": providers}, ensure_ascii=False
        ).encode(),
        "f",
    )
    assert (found.errors, found.warnings) == ([], [])
    read = {
        entry.key.value: (
            {name: dict(record) for name, record in entry.inventories.items()},
            entry.traits,
        )
        for entry in found.entries
    }
    assert read == {
        name: ({one: {**DEFAULTS, **record} for one, record in inventories.items()}, traits)
        for name, (inventories, traits) in wanted.items()
    }
