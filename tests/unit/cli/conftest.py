"""What a command line changes in its process is taken back after each test."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A home of its own; logging and the hook for uncaught exceptions as they were."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    loggers = [logging.getLogger(), *(one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger))]
    levels = [(logger, logger.level) for logger in loggers]
    root = loggers[0]
    handlers = root.handlers[:]
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    for logger, level in levels:
        logger.setLevel(level)
