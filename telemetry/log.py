"""Sets up a process's log on stderr, in the form of its settings."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from logging.handlers import MemoryHandler
from types import TracebackType
from typing import Any

from contracts.printable import printable
from telemetry.config import LoggingConfig
from telemetry.json_lines import JsonLines

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
HELD_RECORDS = 10_000

logger = logging.getLogger("slipstream")


class StartingLog:
    """Holds log records while settings are read, because the settings decide their form."""

    def __init__(self) -> None:
        self.config = LoggingConfig()
        """Replaced as soon as the settings are known."""


class TextLines(logging.Formatter):
    """Formats a record as text, one line for each message, so that text of clients and engines can neither imitate a
    record nor send a terminal commands."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's own name
        """The line without its traceback."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """The traceback, which has lines."""
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


@contextlib.contextmanager
def starting_log() -> Iterator[StartingLog]:
    """Log to stderr from the end of the block on, beginning with the records of the block. Does nothing in a process
    that already has a log, such as a test."""
    root, log = logging.getLogger(), StartingLog()
    if root.handlers:
        yield log
        return
    root.setLevel(logging.INFO)
    held = MemoryHandler(HELD_RECORDS, flushLevel=logging.CRITICAL + 1)
    root.addHandler(held)
    try:
        yield log
    finally:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(TextLines())
        if log.config.format == "json":
            handler.setFormatter(JsonLines())
            _log_what_python_prints()
        root.removeHandler(held)
        held.setTarget(handler)
        held.close()
        root.addHandler(handler)


def in_json() -> bool:
    """Whether this process's log is JSON. Nothing else may then be written to stderr."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def _log_what_python_prints() -> None:
    """Log warnings and uncaught exceptions, whose plain text would not be JSON."""
    logging.captureWarnings(capture=True)

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        logger.critical("ended by an exception", exc_info=(kind, error, trace))

    def uncaught_in_thread(raised: threading.ExceptHookArgs) -> None:
        name = "a thread" if raised.thread is None else f"thread {raised.thread.name}"
        if raised.exc_value is not None:
            logger.critical("%s ended by an exception", name, exc_info=raised.exc_value)

    sys.excepthook = uncaught
    threading.excepthook = uncaught_in_thread
