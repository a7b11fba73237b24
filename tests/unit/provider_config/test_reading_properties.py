"""Whatever a file holds, it is read or refused with a list of what is wrong; and what is right
comes back as it was written.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ConfigErrors
from agent.model.inventory import DEFAULTS, problems
from agent.model.names import is_custom, is_uuid, printable
from agent.provider_config.applying import COMPUTE_NODE, ProviderConfig
from agent.provider_config.reading import _read_file, read_folder

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
    keys = [entry.key for entry in config.entries]
    assert len(set(keys)) == len(keys)
    for entry in config.entries:
        assert entry.inventories or entry.traits
        assert 1 <= len(entry.key.value) <= 200
        assert (
            entry.key.by == "name"
            or entry.key.is_default
            or (is_uuid(entry.key.value) and entry.key.value == entry.key.value.lower())
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
