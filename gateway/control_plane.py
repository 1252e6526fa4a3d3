"""The admin API and the console beside the requests that a gateway serves.

They are as much code as all the rest, and nothing that serves inference needs them: they are loaded in a thread, once
the gateway takes connections, and their first request waits for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

FIRST_STEPS = frozenset({"admin", "console"})
logger = logging.getLogger(__name__)


class Control(Protocol):
    """The application that is loaded."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        ...

    async def start(self) -> None:
        """Called on the loop that serves. `stop` follows it, also where it failed."""
        ...

    async def stop(self) -> None:
        """Requests under way fail."""
        ...


def is_controlled(path: str) -> bool:
    """Whether a request for this path is the control plane's, misspelt ones included: `/v1/admin/keys`, `//console`."""
    return next((step for step in path.split("/") if step not in ("", "v1")), "") in FIRST_STEPS


class ControlPlane:
    """The ASGI application of the control plane, which it loads itself."""

    def __init__(self, load: Callable[[], Control], on_loaded: Callable[[], object] = lambda: None) -> None:
        """load: called once, in a thread; again after it failed. on_loaded: called when all of it is there."""
        self._load = load
        self._on_loaded = on_loaded
        self._loading: asyncio.Task[Control] | None = None
        self._control: Control | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request; the first one waits for the loading. Raises what that raised."""
        control = self._control
        if control is None:
            control = await asyncio.shield(self._begun())
        await control(scope, receive, send)

    def start(self) -> None:
        """Load it now, in the background. A failure is logged, and the next request tries again."""
        self._begun().add_done_callback(_logged)

    async def stop(self) -> None:
        """Idempotent."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        control, self._control = self._control, None
        if control is not None:
            await control.stop()

    def _begun(self) -> asyncio.Task[Control]:
        if self._loading is None or (self._loading.done() and self._control is None):
            self._loading = asyncio.create_task(self._loaded(), name="control plane")
        return self._loading

    async def _loaded(self) -> Control:
        control = await asyncio.to_thread(self._load)
        try:
            await control.start()
        except BaseException:
            await control.stop()
            raise
        self._control = control
        self._on_loaded()
        return control


def _logged(loading: asyncio.Task[Control]) -> None:
    if not loading.cancelled() and (error := loading.exception()) is not None:
        logger.error("the admin API and the console cannot be loaded; the next request tries again", exc_info=error)
