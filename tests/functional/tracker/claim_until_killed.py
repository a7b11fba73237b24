"""A process that claims F1 for i1 on HA and goes no further than a given moment of its transaction;
then it waits to be killed.
"""

import threading
from pathlib import Path

from agent.store.store import open_store
from tests.support import serve
from tests.support.broken_store import breakable
from tests.support.child import READY
from tests.support.tracking import F1, World


def wait_for_the_end() -> None:
    print(f"{READY}0", flush=True)
    threading.Event().wait()


def main() -> None:
    """Options: path, connection (or null), moment."""
    options = serve.options_from_parent()
    with open_store(Path(options["path"]), options["connection"]) as store:
        ha = World(store).plain("HA")
        breakable(ha).break_at(options["moment"], wait_for_the_end)
        ha.claim("i1", F1)


if __name__ == "__main__":
    main()
