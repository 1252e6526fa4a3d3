"""What a gateway loads that `benchmarks.tracing_overhead` starts: SIGUSR2 stops the making of spans, or begins it.

Which of the two holds, and the id of the thread that sends spans, is written to the file that SWITCHED_TRACING names.
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
    """Puts other methods in a class' place, by turns."""

    def __init__(self) -> None:
        self._others: dict[str, Callable[..., Any]] = dict.fromkeys(METHODS, lambda *_: None)
        self._on = True

    def __call__(self, *_: object) -> None:
        """Turn."""
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
