"""Loaded by the gateway that `benchmarks.tracing_overhead` starts: SIGUSR2 switches the making of spans off, or on.

The new state, and the id of the thread that sends spans, are written to the file that SWITCHED_TRACING names.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

METHODS = ("begin", "end")


class Switch:
    """Swaps the methods of `RequestSpans` with others that do nothing, and back."""

    def __init__(self) -> None:
        self._others: dict[str, Callable[..., Any]] = dict.fromkeys(METHODS, lambda *_: None)
        self._on = True

    def __call__(self, *_: object) -> None:
        """Switch."""
        from gateway.serving.request_spans import RequestSpans

        mine = {name: getattr(RequestSpans, name) for name in METHODS}
        for name, method in self._others.items():
            setattr(RequestSpans, name, method)
        self._others, self._on = mine, not self._on
        sender = next(each.native_id for each in threading.enumerate() if each.name == "spans")
        file = Path(os.environ["SWITCHED_TRACING"])
        file.with_suffix(".new").write_text(f"{'on' if self._on else 'off'} {sender}")
        file.with_suffix(".new").rename(file)


signal.signal(signal.SIGUSR2, Switch())
