"""A crash: the end of a process, at a place that a test chose."""

from typing import Any, NoReturn


class Crash(BaseException):
    """The process is gone: nothing that catches errors sees it."""


def crash(*_args: Any) -> NoReturn:
    raise Crash
