"""The process behind ``Keystone``: the real keystone, with its database made and bootstrapped on
the first start.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import serve


def make_app(config_file: str, database: Path, password: str, port: int) -> Any:
    """keystone's WSGI application; ``port`` is where it will be found."""
    if not database.exists():
        _manage(config_file, "db_sync")
        url = f"http://127.0.0.1:{port}/v3"
        _manage(
            config_file,
            *("bootstrap", "--bootstrap-password", password, "--bootstrap-region-id", "RegionOne"),
            *("--bootstrap-public-url", url, "--bootstrap-internal-url", url),
        )
    # keystone reads sys.argv itself and refuses what it does not know
    sys.argv = ["keystone"]
    from keystone.server.flask import core

    return core.initialize_application(name="public", config_files=[config_file])


def _manage(config_file: str, *command: str) -> None:
    program = "from keystone.cmd.manage import main; main()"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, "--config-file", config_file, *command],
        check=True,
        stdout=sys.stderr,
    )


def main() -> None:
    """Options: config_file, database, password, port, threads."""
    options = serve.options_from_parent()
    serve.serve(
        lambda port: make_app(
            options["config_file"], Path(options["database"]), options["password"], port
        ),
        options["port"],
        threads=options["threads"],
    )


if __name__ == "__main__":
    main()
