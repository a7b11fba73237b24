"""The command ``agent``, and ``python -m agent``."""

import os
import sys


def main() -> int:
    """Run the command line of this process. Returns its exit code."""
    if sys.stdout is None:
        # Closed by whoever started us.
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    argv = sys.argv[1:]
    if "--version" in argv:
        # Before everything heavy is imported, because scripts ask this often.
        from agent.version import agent_version

        print(f"agent {agent_version()}")
        return 0
    # Because stevedore would leave a list of all plugins in the user's cache folder, and a dry run
    # writes nothing to disk.
    os.environ["XDG_CACHE_HOME"] = os.devnull
    from agent.cli.main import run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
