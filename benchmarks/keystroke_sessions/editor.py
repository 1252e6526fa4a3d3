"""One user's editor: requests a completion at every pause between keys, and records what became of each.

Editors differ in what they do with a request that a newer key has made useless: half of them close its connection, as
Continue does; the others leave it running, as Tabby's and llama.cpp's plug-ins do.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from benchmarks.keystroke_sessions.edits import Edit, Key, Kind, keys

DEBOUNCE_S = 0.075
"""After a shorter pause the editor requests nothing."""
OUTPUT_TOKENS = 24
LEAVE_S = 0.5
"""The pause from the end of one file to the first key in the next."""


class Asked(msgspec.Struct):
    """One request, as its editor recorded it. Moments are Unix times in seconds."""

    id: str
    """The editor's id of the request (`x-client-request-id`)."""
    kind: Kind
    sent_at: float
    first_at: float | None = None
    """When the first text arrived, or when an answer without text ended."""
    closed_at: float | None = None
    """When the editor closed the connection."""
    next_at: float | None = None
    """When the same user's next request was sent; None if this one had ended before."""
    status: int = 0
    """0 if the connection was closed before a status arrived."""
    refusal: str = ""
    """The error that was answered, or how the connection was lost; empty if neither happened."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    file: str = ""
    """The id of the first request in the same file."""


class Endpoint(msgspec.Struct, frozen=True):
    """The servers that an editor sends its requests to, and what the requests carry."""

    urls: tuple[str, ...]
    """Used in turn."""
    key: str
    model: str
    client_window: tuple[int, int] | None = None
    """The characters before and after the cursor that the editor sends; None for the whole file."""

    def body(self, key: Key, user: str) -> dict[str, Any]:
        """An OpenAI completion with a suffix, which every server here supports."""
        prefix, suffix = key.prefix, key.suffix
        if self.client_window is not None:
            before, after = self.client_window
            prefix, suffix = prefix[-before:], suffix[:after]
        return {
            "model": self.model, "prompt": prefix, "suffix": suffix, "user": user, "max_tokens": OUTPUT_TOKENS,
            "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip


class Editor:
    """Types one edit after another. closes: whether it closes the connection of a request that a key made useless."""

    def __init__(self, name: str, endpoint: Endpoint, client: aiohttp.ClientSession, *, closes: bool) -> None:
        self._name = name
        self._endpoint = endpoint
        self._client = client
        self._closes = closes
        self._turn = itertools.cycle(endpoint.urls)
        self._running: dict[asyncio.Task[None], Asked] = {}
        self.asked: list[Asked] = []

    async def type(self, edits: Sequence[Edit], source: random.Random, keys_each: int) -> None:
        """Type the edits; returns when the last answer has ended.

        It waits for the first answer at a place, like a user who reads before typing: what takes a GPU milliseconds
        takes a CPU seconds, in which a user would not type on.
        """
        for edit in edits:
            typed = list(keys(edit, source, keys_each))
            for key, following in itertools.zip_longest(typed, typed[1:]):
                self._give_up()
                if key.kind in (Kind.COLD, Kind.JUMP):
                    await self._ask(key, f"{self._name}:{edit.path}")
                elif following is None or following.pause_s >= DEBOUNCE_S:
                    self._ask(key, f"{self._name}:{edit.path}")
                await asyncio.sleep(LEAVE_S if following is None else following.pause_s)
        await asyncio.gather(*self._running)

    def _give_up(self) -> None:
        """Close the running requests, if this editor does: the key just pressed has made their answers useless."""
        for task, asked in self._running.items():
            if self._closes and asked.closed_at is None and not task.done():
                asked.closed_at = time.time()
                task.cancel()

    def _ask(self, key: Key, user: str) -> asyncio.Task[None]:
        asked = Asked(uuid.uuid4().hex, key.kind, time.time())
        asked.file = asked.id if key.kind is Kind.COLD or not self.asked else self.asked[-1].file
        for other in self._running.values():
            other.next_at = other.next_at or asked.sent_at
        task = asyncio.create_task(self._read(asked, next(self._turn), self._endpoint.body(key, user)))
        self._running[task] = asked
        task.add_done_callback(self._running.pop)
        self.asked.append(asked)
        return task

    async def _read(self, asked: Asked, url: str, body: dict[str, Any]) -> None:
        headers = {"authorization": f"Bearer {self._endpoint.key}", "x-client-request-id": asked.id}
        try:
            async with self._client.post(f"{url}/v1/completions", json=body, headers=headers) as answer:
                asked.status = answer.status
                if asked.status != 200:
                    asked.refusal = (await answer.text())[:200] or str(asked.status)
                    return
                async for line in answer.content:
                    if not line.startswith(b"data: {"):
                        continue
                    event = msgspec.json.decode(line[6:])
                    if asked.first_at is None and any(choice["text"] for choice in event["choices"]):
                        asked.first_at = time.time()
                    if usage := event.get("usage"):
                        asked.prompt_tokens = usage["prompt_tokens"]
                        asked.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            asked.first_at = asked.first_at or time.time()
        except asyncio.CancelledError:
            return
        except aiohttp.ClientError as error:
            asked.refusal = f"connection lost: {type(error).__name__}"
