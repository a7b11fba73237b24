"""What is told at the end of a run of the tests that were left out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.child import CHECKOUT

TESTS = """
import pytest

from tests.support import backends
from tests.support.recordings import ABSENT


@pytest.fixture(scope="session")
def server():
    backends.missing("PostgreSQL", "apt-get install postgresql", "there is no PostgreSQL in /usr/lib/postgresql")


@pytest.mark.parametrize("number", range(20))
def test_with_a_server(server, number):
    pass


def test_with_a_module():
    backends.require("no_such_module")


@pytest.mark.parametrize("number", [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT))])
def test_with_recordings(number):
    pass


def test_for_another_reason():
    pytest.skip("not on a Tuesday")


def test_without():
    pass
"""
MODULE = """
from tests.support import backends

backends.require("no_such_module")


def test_nothing():
    pass
"""


def run(folder: Path, *arguments: str, required: bool = False) -> str:
    """What pytest prints of the tests above, with this project's options and plugin."""
    (folder / "test_some.py").write_text(TESTS)
    (folder / "test_module.py").write_text(MODULE)
    (folder / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n")
    plugins = ["-p", "xdist", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    options = [
        *plugins,
        "-c",
        str(CHECKOUT / "tox.ini"),
        "--rootdir",
        str(folder),
        *arguments,
        str(folder),
    ]
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "REQUIRE_BACKENDS"))
    }
    env = {
        **kept,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(CHECKOUT),
        **({"REQUIRE_BACKENDS": "1"} if required else {}),
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
        check=False,
    ).stdout


@pytest.mark.long
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["in one process", "in two"])
def test_missing_parts_are_told_in_a_line_each(tmp_path: Path, workers: list[str]) -> None:
    said = run(tmp_path, *workers)
    section = re.search(r"=+ left out =+\n(.*?)\n+=", said, re.DOTALL)
    assert section, said
    assert section.group(1).split("\n") == [
        "PostgreSQL: 20 tests left out; apt-get install postgresql",
        "Python module no_such_module: 2 tests left out; pip install -e '.[test]'",
        "not on a Tuesday: 1 test left out",
        (
            "recordings of real machines: 1 test left out; set SHARED to a folder that has them in "
            "data/hosts"
        ),
    ], said
    assert "SKIPPED" not in said
    assert re.search(r"1 passed, 2[34] skipped", said.splitlines()[-1])


def test_parts_that_are_required_fail_the_tests_that_need_them(tmp_path: Path) -> None:
    said = run(tmp_path, "--ignore", str(tmp_path / "test_module.py"), required=True)
    assert said.count("REQUIRE_BACKENDS=1, but there is no PostgreSQL in /usr/lib/postgresql") >= 20
    assert re.search(r"1 failed, 1 passed, 2 skipped, 20 errors", said.splitlines()[-1])


def test_nothing_is_told_where_nothing_is_left_out(tmp_path: Path) -> None:
    said = run(tmp_path, "-k", "without", "--ignore", str(tmp_path / "test_module.py"))
    assert "left out" not in said
