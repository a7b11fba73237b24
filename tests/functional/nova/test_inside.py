"""nova's own functional tests pass with the agent's engine in nova-compute."""

import os
import subprocess

import pytest

from tests.nova.run import FAST
from tests.support import backends
from tests.support.child import CHECKOUT

NOVA = os.environ.get("NOVA_PYTHON")
NEEDED = "ddt, fixtures, oslotest, requests-mock, testscenarios, testtools, wsgi_intercept, msgspec"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def nova() -> str:
    names = NEEDED.replace("requests-mock", "requests_mock")
    if not NOVA or subprocess.run([NOVA, "-c", f"import nova, {names}"], check=False).returncode:
        pytest.skip(
            backends.reason(
                "nova's own functional tests",
                f"set NOVA_PYTHON to a Python with nova==34.0.0 'SQLAlchemy<2.1', {NEEDED}",
            )
        )
    return str(NOVA)


@pytest.mark.parametrize("module", FAST)
def test_novas_own_tests_pass_with_the_engine_in_place(nova: str, module: str) -> None:
    ran = subprocess.run(
        [nova, "-m", "tests.nova.run", module],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert f"{module}: {FAST[module]} tests, passed" in ran.stdout
