"""Real parts a test needs: missing, they skip the test, or fail it where ``REQUIRE_BACKENDS=1``
says they must be there.

At the end of a run each missing part is told once, with the number of tests left out and what
brings it here.
"""

import importlib
import os
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

import pytest

AS_ROOT = "run make test as root"
TEST_EXTRA = "pip install -e '.[test]'"
SEPARATOR = "; "
PREFIX = "Skipped: "


def require(*modules: str, remedy: str = TEST_EXTRA) -> None:
    """Import the modules of a real part. ``remedy``: what brings them here."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            missing(f"Python module {module}", remedy, f"{module} cannot be imported: {error}")


def missing(part: str, remedy: str, why: str = "") -> NoReturn:
    """Skip or fail the present test because a real part is not there.

    :param remedy: what brings the part here; with ``part`` it is told once for all tests that need
        the part.
    :param why: more of this very case, for a failure.
    """
    if os.environ.get("REQUIRE_BACKENDS") == "1":
        pytest.fail(
            f"REQUIRE_BACKENDS=1, but {why or f'{part} is missing: {remedy}'}", pytrace=False
        )
    pytest.skip(reason(part, remedy), allow_module_level=True)


def reason(part: str, remedy: str) -> str:
    """Return the reason of a skip that :func:`left_out` understands."""
    return f"{part}{SEPARATOR}{remedy}"


def left_out(skipped: Iterable[pytest.TestReport]) -> list[str]:
    """Return a line for each reason for which tests were skipped, those of the most tests first,
    else by name.
    """
    # By nodeid, because several workers may report the same module.
    counts = Counter(
        _reason_of(report) for report in {report.nodeid: report for report in skipped}.values()
    )
    # Of as many tests by their names, because reports of several workers come in no order.
    return [_line(*one) for one in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]


def _reason_of(report: pytest.TestReport) -> str:
    # Of a skip it is always the file, the line and the reason.
    return str(
        report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
    ).removeprefix(PREFIX)


def _line(why: str, count: int) -> str:
    part, separator, remedy = why.partition(SEPARATOR)
    return f"{part}: {count} test{'s' if count > 1 else ''} left out{separator}{remedy}"
