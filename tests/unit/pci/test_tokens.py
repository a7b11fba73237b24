"""Resource classes and traits: what an operator writes, and what Placement gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.names import is_token
from agent.pci.option_value import class_of, class_of_ids, traits_of
from tests.unit.pci.scene import offered


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("pgpu", "PGPU"),
        ("VGPU", "VGPU"),
        ("a16 16a", "CUSTOM_A16_16A"),
        ("CUSTOM_foo", "CUSTOM_FOO"),
        ("custom-foo", "CUSTOM_CUSTOM_FOO"),
        ("a - b", "CUSTOM_A_B"),
        ("a__b", "CUSTOM_A__B"),
        (" pgpu ", "PGPU"),
        ("größe", "CUSTOM_GR_SSE"),
    ],
)
def test_classes(text, name):
    assert class_of(text) == name


def test_class_of_a_device_without_one():
    assert class_of_ids("8086", "15ab") == "CUSTOM_PCI_8086_15AB"
    assert offered({"address": "0000:81:00.0"})["P0"].resource_class == "CUSTOM_PCI_8086_1533"


@pytest.mark.parametrize(
    ("text", "traits"),
    [
        ("", set()),
        (" , ,", set()),
        ("HW_GPU_API_VULKAN,purple", {"HW_GPU_API_VULKAN", "CUSTOM_PURPLE"}),
        ("blue, big", {"CUSTOM_BLUE", "CUSTOM_BIG"}),
        ("a,,b", {"CUSTOM_A", "CUSTOM_B"}),
        ("hw_gpu_api_vulkan", {"HW_GPU_API_VULKAN"}),
        ("custom_x", {"CUSTOM_X"}),
        ("HW_NO_SUCH_THING", {"CUSTOM_HW_NO_SUCH_THING"}),
        ("a b - c", {"CUSTOM_A_B_C"}),
        ("same,SAME,CUSTOM_SAME", {"CUSTOM_SAME"}),
    ],
)
def test_traits(text, traits):
    assert traits_of(text) == (traits, [])


def test_traits_that_none_can_be_called():
    traits, wrong = traits_of(f"CUSTOM_bad-char,good,{'x' * 250},CUSTOM_{'y' * 249}")
    assert traits == {"CUSTOM_GOOD"}
    assert [why.partition(" has ")[2] for why in wrong] == [
        "other characters than A-Z, 0-9 and _",
        "257 characters, more than 255",
        "256 characters, more than 255",
    ]


@given(st.text(min_size=1, max_size=300))
def test_every_name_is_one_that_placement_takes_or_an_error(text: str):
    traits, wrong = traits_of(text)
    assert all(map(is_token, traits))
    assert len(traits) + len(wrong) <= text.count(",") + 1
    try:
        assert is_token(class_of(text))
    except ValueError as error:
        assert "characters" in str(error)
