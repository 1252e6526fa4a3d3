"""uvicorn, told to say at once when a signal asks it to end: new requests are then refused, running ones finish."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType

import uvicorn


class HttpServer(uvicorn.Server):
    """One instance's HTTP server. `on_exit` is called when the first signal arrives."""

    on_exit: Callable[[], None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """uvicorn's signal handler."""
        if self.on_exit is not None:
            self.on_exit()
        super().handle_exit(sig, frame)
