"""Entry point of the command ``agent`` and of ``python -m agent``."""

import gc
import os
import sys


def main() -> int:
    """Run the command line of this process. Return its exit code."""
    # A stream is None if the parent process closed it.
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    argv = sys.argv[1:]
    if "--version" in argv:
        # Before the expensive imports, because scripts ask for it often.
        from agent.version import agent_version

        print(f"agent {agent_version()}")
        return 0
    # stevedore would write a list of all plugins to the user's cache folder, and a dry run writes
    # nothing to disk.
    os.environ["XDG_CACHE_HOME"] = os.devnull
    # Loading code makes no garbage, and searching for it would be a quarter of the work.
    gc.disable()
    from agent.cli.main import run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
