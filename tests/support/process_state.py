"""What a command line changes in the process that runs it, taken back afterwards."""

import contextlib
import logging
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def undone() -> Iterator[None]:
    """Inside, logging and the hook for uncaught exceptions may be changed; afterwards they are as
    they were.
    """
    hook, handlers = sys.excepthook, logging.getLogger().handlers[:]
    loggers = [
        logging.getLogger(),
        *(
            one
            for one in logging.Logger.manager.loggerDict.values()
            if isinstance(one, logging.Logger)
        ),
    ]
    levels = [(logger, logger.level) for logger in loggers]
    try:
        yield
    finally:
        sys.excepthook = hook
        for handler in loggers[0].handlers:
            if handler not in handlers:
                handler.close()
        loggers[0].handlers[:] = handlers
        for logger, level in levels:
            if logger.level != level:
                logger.setLevel(level)
