"""A pytest plugin for authors of drivers: the fixture ``check_driver``.

In ``conftest.py``: ``pytest_plugins = ["agent.conformance.pytest_plugin"]``.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from oslo_config import cfg

from agent.conf import options
from agent.conformance.check import CheckedPromise
from agent.conformance.suite import Conformance, check_conformance
from agent.driver.interface import Driver

CheckDriver = Callable[..., Conformance]
"""Takes the driver's class, or a function of the options that returns an instance; and the files
that the options come from.
"""


@pytest.fixture
def check_driver() -> CheckDriver:
    """Return what checks a driver as ``agent driver check`` does: the test fails if a promise is
    broken, and names each.
    """

    def check(make: Callable[[cfg.ConfigOpts], Driver], *config_files: Path) -> Conformance:
        conf = cfg.ConfigOpts()
        options.register(conf)
        conf([], default_config_files=[*map(str, config_files)], default_config_dirs=[])
        found = check_conformance(make.__name__, lambda: make(conf), conf)
        if broken := found.having("broken"):
            pytest.fail("\n".join(map(_text, broken)), pytrace=False)
        return found

    return check


def _text(promise: CheckedPromise) -> str:
    breaches = "".join(f"\n    {breach}" for breach in promise.breaches)
    return f"{promise.check.name}: {promise.check.promise}{breaches}\n  → {promise.check.remedy}"
