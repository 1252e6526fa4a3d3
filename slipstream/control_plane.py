"""Loads and serves the admin API and the console in a gateway's process.

They are half of the code, and inference does not need them: a thread loads them once the gateway accepts connections,
and their first request waits for it. A failed load is retried after pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from contracts.backoff import Backoff
from contracts.dated_request_id import mint
from contracts.errors import ServiceError
from gateway.wire.errors import body_of, headers_of, status_of

FIRST_STEPS = frozenset({"admin", "batches", "console", "files", "organization"})
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Pauses between two attempts to load the control plane."""
logger = logging.getLogger(__name__)


class Control(Protocol):
    """The application that `ControlPlane` loads."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        ...

    async def start(self) -> None:
        """Called on the event loop that serves. `stop` follows it, even if it failed."""
        ...

    async def stop(self) -> None:
        """Stop; requests under way fail."""
        ...


class ControlPlane:
    """The ASGI application of the control plane, which it loads itself. A gateway mounts it (`gateway.services`)."""

    def __init__(
        self,
        load: Callable[[], Control],
        on_loaded: Callable[[], object] = lambda: None,
        describe: Callable[[bytes], bytes] = lambda document: document,
    ) -> None:
        """load: called in a thread, and again after it failed. on_loaded: called after a successful load. describe: see
        `document`."""
        self._describe = describe
        self._load = load
        self._on_loaded = on_loaded
        self._loading: asyncio.Task[None] | None = None
        self._attempt: asyncio.Future[None] | None = None
        """Done once the current attempt has succeeded or failed; None in a pause."""
        self._next_attempt_s = 0.0
        self._control: Control | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request after the current attempt to load. Between a failed attempt and the next one, the response
        is 503."""
        if self._control is None:
            self.start()
            if self._attempt is not None:
                await asyncio.shield(self._attempt)
        if self._control is not None:
            await self._control(scope, receive, send)
        else:
            await self._refuse(send)

    def document(self, document: bytes) -> bytes:
        """The inference API's OpenAPI document with the control plane's endpoints for tenants' keys added."""
        return self._describe(document)

    def serves(self, path: str) -> bool:
        """Whether the control plane answers this path, including misspelt ones: `/v1/admin/keys`, `//console`."""
        return next((step for step in path.split("/") if step not in ("", "v1")), "") in FIRST_STEPS

    def start(self) -> None:
        """Load it now, in the background. Idempotent."""
        if self._loading is None:
            self._attempt = asyncio.get_running_loop().create_future()
            self._loading = asyncio.create_task(self._loaded(), name="control plane")

    async def stop(self) -> None:
        """Cancel the load and stop the control plane. Idempotent."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        control, self._control = self._control, None
        if control is not None:
            await control.stop()

    async def _loaded(self) -> None:
        """Load the control plane, with retries until it succeeds."""
        clock, backoff = asyncio.get_running_loop().time, Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while self._control is None:
            attempt = self._attempt = self._attempt or asyncio.get_running_loop().create_future()
            try:
                control = await asyncio.to_thread(self._load)
                try:
                    await control.start()
                except BaseException:
                    await control.stop()
                    raise
                self._control = control
                self._on_loaded()
            except Exception:
                pause_s = backoff.next_s()
                self._next_attempt_s = clock() + pause_s
                logger.exception(
                    "the admin API and the console cannot be loaded; the next attempt is in %.1f s", pause_s
                )
            finally:
                self._attempt = None
                if not attempt.done():
                    attempt.set_result(None)
            if self._control is None:
                await asyncio.sleep(self._next_attempt_s - clock())

    async def _refuse(self, send: Any) -> None:
        left_s = self._next_attempt_s - asyncio.get_running_loop().time()
        error = ServiceError(
            "Files, batches, the admin API and the console cannot be loaded. The gateway retries; its log has the "
            "reason. Inference still works.",
            retry_after_s=max(1.0, left_s),
        )
        body = body_of(error)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", mint().encode()),
            *headers_of(error),
        ]
        await send({"type": "http.response.start", "status": status_of(error), "headers": headers})
        await send({"type": "http.response.body", "body": body})
