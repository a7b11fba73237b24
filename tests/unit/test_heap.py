"""What is free goes back to the system: large blocks at once, all else when that is asked for."""

import subprocess
import sys

from tests.support.child import CHECKOUT

# In a process of its own, whose memory nothing else changes.
BEGIN = """
from pathlib import Path
from agent.service.heap import give_back_memory, limit_unused_memory

def resident():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").open())
    return int(fields["VmRSS"].split()[0])

limit_unused_memory()
"""
# 40 MB in blocks that the heap has, of which one at the end stays.
SMALL = """
before = resident()
blocks = [bytes(4000) for _ in range(10000)]
last = blocks[-1]
del blocks
kept = resident() - before
give_back_memory()
print(kept, resident() - before)
"""
# As many in blocks of the size of a large request, and 2 MB in smaller ones between them that stay.
# A large block was freed before, after which glibc by itself takes the next ones from the heap.
LARGE = """
first = b"x" * 20_000_000
del first
before = resident()
blocks, small = [], []
for _ in range(40):
    blocks.append(b"x" * 1_000_000)
    small.append(b"x" * 50_000)
there = resident() - before
del blocks
print(there, resident() - before)
"""


def measured(script: str) -> tuple[int, int]:
    """The two amounts that the script prints, in KiB."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script],
        capture_output=True,
        text=True,
        check=True,
        cwd=CHECKOUT,
    )
    first, second = map(int, done.stdout.split())
    return first, second


def test_what_is_free_before_a_block_that_stays_is_given_back():
    kept, left = measured(SMALL)
    assert kept > 30_000
    assert left < 2_000


def test_large_blocks_are_given_back_whatever_stays_between_them():
    there, left = measured(LARGE)
    assert there > 30_000
    assert left < 4_000
