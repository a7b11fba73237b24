"""What bandit passes over in the product has a reason."""

import re
import tomllib

from tests.support.child import CHECKOUT

EXCEPTION = re.compile(r"# (?:noqa: S\d+ -+ )?\w[^#]+ # nosec B\d+(?:, B\d+)*$")


def test_every_line_that_is_excepted_says_why_and_from_which_check():
    lines = {
        f"{file.relative_to(CHECKOUT)}:{number}": line
        for package in ("agent", "drivers")
        for file in sorted((CHECKOUT / package).rglob("*.py"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if "# nosec" in line
    }
    assert lines
    assert [place for place, line in lines.items() if not EXCEPTION.search(line)] == []


def test_every_check_that_is_off_has_a_reason_above_it():
    text = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    off = tomllib.loads(text)["tool"]["bandit"]
    assert off.keys() == {"skips"}
    (section,) = re.findall(r"^\[tool\.bandit\]\n(.+?)\n\n", text, re.MULTILINE | re.DOTALL)
    groups = re.findall(r"^    # (\S+).+\n((?:    \"B\d+\",\n)+)", section + "\n", re.MULTILINE)
    explained = [check for _, checks in groups for check in re.findall(r"B\d+", checks)]
    assert explained == off["skips"]
