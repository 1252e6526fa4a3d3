"""Asks one item over HTTP as a customer would, and retries until there is an answer or a retry cannot help."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec

from contracts.backoff import Backoff
from control.evals.target import Target
from evals.asked import body_of, path_of, text_of
from evals.slices.item import Item

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
LONGEST_RETRY_AFTER_S = 60.0
POOL_HEADER = "x-slipstream-pool"
OF_THE_ITEM = frozenset({"context_length_exceeded", "engine_refused"})
"""Refusals that are the model's answer: it cannot take this item. They score 0."""
NO_SCOPE = "insufficient_scope"
"""The key of an older version has only the scope for conversations."""
AGAIN = frozenset({408, 429, 500, 502, 503, 504})
MAX_FAILED = 6
"""Consecutive engine failures without a `retry-after`, for example when a pool's engines do not know the model: waiting
longer does not help."""
LONG_S = 5.0
"""Time from an item's first request after which a retry is reported as a wait."""


class Answer(msgspec.Struct, frozen=True):
    """An answer. error_code: of the refusal in place of an answer."""

    text: str
    request_id: str | None
    latency_ms: float
    error_code: str | None = None


class GatewayKeyRefused(Exception):
    """The gateway does not accept the key."""


class Unanswerable(Exception):
    """The run cannot get an answer; the message gives the reason."""


class Asker:
    """Asks one model, on one pool if one is named.

    url: the gateway's, without /v1. waits: called with a sentence whenever an item has waited long.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        key: str,
        target: Target,
        pool: str | None,
        patience_s: float,
        waits: Callable[[str], None],
    ) -> None:
        self._session = session
        self._base = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {key}"} | ({POOL_HEADER: pool} if pool else {})
        self._model = target.model
        self._where = f"pool {pool}" if pool else f"the pool that the router chooses ({target.pool} is the model's own)"
        self._patience_s = patience_s
        self._waits = waits

    async def ask(self, item: Item) -> Answer:
        """The greedy answer. Raises GatewayKeyRefused and Unanswerable."""
        url, backoff, began_s = self._url_of(item), Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), time.monotonic()
        failed = 0
        while True:
            retry_after_s = 0.0
            try:
                status, headers, body, latency_ms = await self._post(item)
            except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as error:
                cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            else:
                request_id = headers.get("x-request-id")
                if status == 200:
                    return Answer(text_of(body), request_id, latency_ms)
                code, message = _refusal_of(body)
                cause = f"HTTP {status}, {code}: {message}{_more_of(request_id)}"
                if status == 401 or code == NO_SCOPE:
                    raise GatewayKeyRefused(cause)
                if code in OF_THE_ITEM:
                    return Answer("", request_id, latency_ms, code)
                if status not in AGAIN:
                    raise Unanswerable(f"{url} refuses {self._which(item)}: {cause}")
                failed = failed + 1 if code == "engine_failed" and "retry-after" not in headers else 0
                if failed == MAX_FAILED:
                    raise Unanswerable(f"{url} failed {failed} times at {self._which(item)}: {cause}")
                with contextlib.suppress(ValueError):
                    retry_after_s = min(float(headers.get("retry-after", 0)), LONGEST_RETRY_AFTER_S)
            waited_s, pause_s = time.monotonic() - began_s, max(retry_after_s, backoff.next_s())
            if waited_s > self._patience_s:
                raise Unanswerable(f"{url} has not answered {self._which(item)} within {self._patience_s:g} s: {cause}")
            if waited_s + pause_s >= LONG_S:
                until = datetime.now(UTC) + timedelta(seconds=self._patience_s - waited_s)
                self._waits(
                    f"{url} does not answer {self._which(item)}: {cause}; retrying until "
                    f"{until:%Y-%m-%d %H:%M:%S} UTC (evals.patience_s is {self._patience_s:g}), then the run fails"
                )
            await asyncio.sleep(pause_s)

    def _url_of(self, item: Item) -> str:
        return f"{self._base}{path_of(item)}"

    def _which(self, item: Item) -> str:
        return f"an item of {item.slice} on {self._where}"

    async def _post(self, item: Item) -> tuple[int, Any, Any, float]:
        began_s = time.monotonic()
        async with self._session.post(
            self._url_of(item), json=body_of(item, self._model), headers=self._headers
        ) as response:
            answer = msgspec.json.decode(await response.read())
            return response.status, response.headers, answer, (time.monotonic() - began_s) * 1e3


def _refusal_of(body: Any) -> tuple[str, str]:
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "unknown", str(body)[:200]
    return str(error.get("code")), str(error.get("message"))[:500]


def _more_of(request_id: str | None) -> str:
    """The command that shows an operator more."""
    return f" (`slipstream requests show {request_id}` shows more)" if request_id else ""
