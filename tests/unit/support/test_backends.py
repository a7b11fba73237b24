"""Missing real parts."""

import pytest

from tests.support import backends


def test_a_part_that_is_there_is_used() -> None:
    backends.require("json", "os.path")


def test_a_missing_part_skips_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUIRE_BACKENDS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no_such_module"):
        backends.require("json", "no_such_module")


def test_a_missing_part_fails_the_test_where_parts_are_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REQUIRE_BACKENDS", "1")
    with pytest.raises(pytest.fail.Exception, match="REQUIRE_BACKENDS=1, but no_such_module"):
        backends.require("no_such_module")
