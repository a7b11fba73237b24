"""What is free anywhere in the heap goes back to the system."""

import subprocess
import sys

from tests.support.child import CHECKOUT

# In a process of its own, whose memory nothing else changes. 40 MB in blocks that the heap has,
# of which one at the end stays.
SCRIPT = """
from pathlib import Path
from agent.service.heap import give_back_memory, limit_unused_memory

def resident():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").open())
    return int(fields["VmRSS"].split()[0])

limit_unused_memory()
before = resident()
blocks = [bytes(4000) for _ in range(10000)]
last = blocks[-1]
del blocks
kept = resident() - before
give_back_memory()
print(kept, resident() - before)
"""


def test_what_is_free_before_a_block_that_stays_is_given_back():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, cwd=CHECKOUT
    )
    kept, left = map(int, done.stdout.split())
    assert kept > 30_000
    assert left < 2_000
