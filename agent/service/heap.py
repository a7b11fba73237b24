"""The heap of glibc, in which libraries written in C, and large values of Python, have their
memory.
"""

import ctypes
from contextlib import suppress

# glibc's numbers of the parameters, and the value of the first, in bytes.
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
LARGE_BLOCK = 128 * 1024


def limit_unused_memory() -> None:
    """Have glibc map each large block by itself, so that its memory is given back when it is freed,
    and have all threads share one heap.

    By itself glibc stops to map blocks of a size that was freed once, and large requests that
    arrive side by side then fragment its heap: 45 MiB for 12 MiB of requests. Of several heaps,
    each keeps what its threads have freed; and the threads take turns at the interpreter anyway.
    Other libraries keep their own rules.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
        libc.mallopt(M_ARENA_MAX, 1)


def give_back_memory() -> None:
    """Give back to the system what is free anywhere in the heap. By itself glibc gives back only
    what is free at its end: after the first pass 4 MiB stayed.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
