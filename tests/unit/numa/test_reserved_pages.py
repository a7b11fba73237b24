import pytest

from agent.errors import ConfigErrors
from agent.model.topology import Cell, PagePool, Topology
from agent.numa.flavor_and_image import parse_page_size
from agent.numa.host_cells import parse_reserved_pages, unreservable

HOST = Topology(
    (
        Cell(0, frozenset(), 8192, (PagePool(2048, 512), PagePool(1048576, 4))),
        Cell(8, frozenset(), 1024),
    )
)


def wrong(*texts: str) -> list[str]:
    with pytest.raises(ConfigErrors) as errors:
        parse_reserved_pages(texts)
    return [error.message for error in errors.value.errors]


def test_pages_are_reserved_by_cell_and_size():
    assert parse_reserved_pages([]) == {}
    pages = parse_reserved_pages(
        ["node:0,size:2048,count:64", " count : 4, size: 1GB , node:0", "node:8,size:4,count:0"]
    )
    assert pages == {(0, 2048): 64, (0, 1048576): 4, (8, 4): 0}
    assert list(unreservable(pages, HOST)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node:0,size:2048,count:x", "count 'x' is no number"),
        ("node:0,size:2048,count:-1", "count '-1' is no number"),
        ("node:٣,size:2048,count:1", "node '٣' is no number"),
        ("node:0,size:many,count:1", "size 'many' is neither"),
        ("node:0,size:2048", "count is missing"),
        ("size:2048,count:1", "node is missing"),
        ("node:0,size:,count:1", "size is missing"),
        ("", "node is missing"),
        ("node:0,size:2048,count:1,cuont:2", "cuont is not known"),
        ("node:0,node:8,size:2048,count:1", "a key is given twice"),
        ("node=0,size:2048,count:1", "node=0 is not known"),
        ("node:0,size:2048,count:\x1b[2J", r"\x1b[2J"),
    ],
)
def test_what_cannot_be_read_is_named(text, message):
    (found,) = wrong(text)
    assert message in found
    assert found.startswith("[DEFAULT] reserved_huge_pages = ")
    assert found.isprintable()


def test_everything_wrong_is_told_at_once():
    assert (
        len(
            wrong(
                "size:2048,count:1", "node:0,size:2048,count:1", "node:0", "node:0,size:2MB,count:2"
            )
        )
        == 3
    )


def test_what_the_host_cannot_give_is_named_with_what_there_is():
    assert list(
        unreservable(
            {(7, 2048): 1, (0, 4096): 1, (8, 2048): 1, (0, 2048): 513, (0, 1048576): 4}, HOST
        )
    ) == [
        (
            "[DEFAULT] reserved_huge_pages = node:7,size:2048,count:1: node 7 is not there",
            "take the entry out; the host has the nodes 0, 8",
        ),
        (
            (
                "[DEFAULT] reserved_huge_pages = node:0,size:4096,count:1: node 0 has no pages of "
                "4096 KiB"
            ),
            "take the entry out; the node has pages of 4, 2048, 1048576 KiB",
        ),
        (
            (
                "[DEFAULT] reserved_huge_pages = node:8,size:2048,count:1: node 8 has no pages of "
                "2048 KiB"
            ),
            "take the entry out; the node has pages of 4 KiB",
        ),
        (
            (
                "[DEFAULT] reserved_huge_pages = node:0,size:2048,count:513: node 0 has only 512 "
                "pages of 2048 KiB"
            ),
            (
                "reserve fewer, or make them: echo 513 > "
                "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("text", "kib"),
    [
        ("4", 4),
        ("2048", 2048),
        ("64KB", 64),
        ("2MB", 2048),
        ("2 MiB", 2048),
        ("2m", 2048),
        ("1GB", 1048576),
        ("1g", 1048576),
        ("1TB", 1024**3),
        (" 4 ", 4),
    ],
)
def test_sizes_of_pages(text, kib):
    assert parse_page_size(text) == kib


@pytest.mark.parametrize(
    "text",
    ["", "0", "0MB", "-4", "2 apples", "MB", "1.5GB", "2B", "2 iB", "٣", "4 4", "1PB", "2MBs"],
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="neither a number of KiB nor a size"):
        parse_page_size(text)
