"""The example of docs/writing-a-driver.md: installed as a package of its own, run, checked, and
tested by its own tests.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.child import CHECKOUT
from tests.support.pages import blocks
from tests.support.system import FOREIGN_VARIABLES, Result

EXAMPLE = CHECKOUT / "docs" / "examples" / "inventory-driver"
PAGE = CHECKOUT / "docs" / "writing-a-driver.md"

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("driver-example")]


class InstalledExample:
    """The example in a folder of its own, installed without a package index."""

    def __init__(self, folder: Path) -> None:
        self.site, self.folder = folder / "site", folder / "inventory-driver"
        built = folder / "built"
        # Copies, because building leaves files behind, and the tests are to find the installed one.
        shutil.copytree(EXAMPLE, built, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        shutil.copytree(EXAMPLE / "tests", self.folder / "tests", dirs_exist_ok=True)
        installing = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation")
        done = self.python(*installing, "--no-index", "--target", str(self.site), str(built))
        assert done.code == 0, done

    def python(self, *arguments: str) -> Result:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(FOREIGN_VARIABLES)
        }
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder if self.folder.exists() else self.folder.parent,
            env={
                **kept,
                "HOME": str(self.folder),
                "PYTHONPATH": f"{self.site}{os.pathsep}{CHECKOUT}",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Result(arguments, done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> InstalledExample:
    return InstalledExample(tmp_path_factory.mktemp("example"))


def test_the_example_is_installed_by_pip_with_its_entry_point(example: InstalledExample) -> None:
    (info,) = example.site.glob("inventory_driver-*.dist-info")
    assert "inventory = inventory_driver:InventoryDriver" in (info / "entry_points.txt").read_text()
    assert (example.site / "inventory_driver.py").read_text() == (
        EXAMPLE / "inventory_driver.py"
    ).read_text()


def test_the_example_is_audited(example: InstalledExample) -> None:
    arguments = ("-m", "agent", "--config-file", "agent.conf", "--once", "--dry-run")
    result = example.python(*arguments, "--compute_driver", "inventory", "--format", "json")
    assert result.code == 0, result
    nodes = {node["name"]: node for node in result.json["nodes"]}
    assert {name: node["state"] for name, node in nodes.items()} == {
        "rack1-node1": "pending",
        "rack1-node2": "pending",
    }
    tree = {provider["name"]: provider["inventories"] for provider in nodes["rack1-node1"]["tree"]}
    assert tree["rack1-node1"]["VCPU"]["total"] == 16
    assert tree["rack1-node1_licences"]["CUSTOM_LICENCE_DATABASE"]["total"] == 4


def test_the_example_keeps_every_promise(example: InstalledExample) -> None:
    result = example.python(
        "-m", "agent", "--config-file", "agent.conf", "driver", "check", "inventory"
    )
    assert (result.code, result.stderr) == (0, ""), result
    assert result.stdout.splitlines()[-1] in PAGE.read_text(), result


def test_the_examples_own_tests_pass(example: InstalledExample) -> None:
    result = example.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert result.code == 0, result


def test_the_code_of_the_page_is_that_of_the_example() -> None:
    """But for the indentation, which a method has in its class alone."""
    sources = "".join(
        "".join(file.read_text().split())
        for file in EXAMPLE.rglob("*")
        if file.suffix in (".py", ".toml")
    )
    shown = [block for block in blocks(PAGE) if block.language in ("python", "toml")]
    assert len(shown) >= 8
    assert [str(block) for block in shown if "".join(block.text.split()) not in sources] == []
