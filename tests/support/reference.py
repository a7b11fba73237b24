"""The Sphinx extension that makes the reference from the code, as a module."""

import importlib.util
from functools import cache
from types import ModuleType

from tests.support.child import CHECKOUT


@cache
def reference_pages() -> ModuleType:
    """``docs/reference.py``."""
    spec = importlib.util.spec_from_file_location("reference", CHECKOUT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
