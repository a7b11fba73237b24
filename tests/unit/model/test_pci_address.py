import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.devices import PciAddress

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
