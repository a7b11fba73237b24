"""Real parts a test needs: missing, they skip the test, or fail it where ``REQUIRE_BACKENDS=1`` says they must be there."""

import importlib
import os

import pytest


def require(*modules: str) -> None:
    """Import the modules of a real part."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            missing(f"{module} cannot be imported: {error}")


def missing(reason: str) -> None:
    """Skip or fail the present test because a real part is not there."""
    if os.environ.get("REQUIRE_BACKENDS") == "1":
        pytest.fail(f"REQUIRE_BACKENDS=1, but {reason}", pytrace=False)
    pytest.skip(reason)
