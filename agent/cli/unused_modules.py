"""Modules that libraries of the agent import only because they are installed."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# osprofiler: keystoneauth1 traces requests with it if the process has a profiler, and the agent
# has none. chardet, charset_normalizer: requests guesses with them in which characters an answer
# without a charset is written; without them it takes UTF-8, which OpenStack uses. Together they
# take 6 MiB.
UNUSED = ("osprofiler", "chardet", "charset_normalizer")


@contextmanager
def not_imported() -> Iterator[None]:
    """Have libraries that are imported meanwhile do without the modules of :data:`UNUSED`. What is
    imported before or afterwards, such as a driver, gets them as ever.
    """
    absent = [name for name in UNUSED if name not in sys.modules]
    # What Python takes for a module that cannot be imported.
    sys.modules |= dict.fromkeys(absent)  # type: ignore[arg-type]
    try:
        with warnings.catch_warnings():
            # requests warns that it cannot guess.
            warnings.filterwarnings("ignore", "Unable to find acceptable character detection")
            yield
    finally:
        for name in absent:
            if sys.modules.get(name, sys) is None:
                del sys.modules[name]
