"""One user's editor: asks for a completion at every pause between keys, and is told what became of each.

Editors differ in what they do with a request that a newer key has made useless: half of them close its connection, as
Continue does, the others leave it to the server, as Tabby's and llama.cpp's plug-ins do.
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
"""A shorter pause asks for nothing."""
OUTPUT_TOKENS = 24
LEAVE_S = 0.5
"""From the end of one file to the first key in the next."""


class Asked(msgspec.Struct):
    """One request, as its editor saw it. Moments are Unix times in seconds."""

    id: str
    """What the editor called it (`x-client-request-id`)."""
    kind: Kind
    sent_at: float
    first_at: float | None = None
    """The first text, or the end of an answer that has none."""
    closed_at: float | None = None
    """The editor closed the connection."""
    next_at: float | None = None
    """The same user's next request went out while this one was still running."""
    status: int = 0
    """0: it was closed before there was any."""
    refusal: str = ""
    """What came instead of a completion: an error, or the end of the connection."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    file: str = ""
    """The first request in the same file, by its id."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where an editor's requests go."""

    urls: tuple[str, ...]
    """Asked in turn."""
    key: str
    model: str
    client_window: tuple[int, int] | None = None
    """Characters before and behind the cursor that the editor sends; None: the whole file."""

    def body(self, key: Key, user: str) -> dict[str, Any]:
        """A completion of OpenAI's with a suffix, which every server here understands."""
        prefix, suffix = key.prefix, key.suffix
        if self.client_window is not None:
            before, behind = self.client_window
            prefix, suffix = prefix[-before:], suffix[:behind]
        return {
            "model": self.model, "prompt": prefix, "suffix": suffix, "user": user, "max_tokens": OUTPUT_TOKENS,
            "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip


class Editor:
    """Types one edit after the other. closes: it closes the connection of a request that is of no more use."""

    def __init__(self, name: str, endpoint: Endpoint, client: aiohttp.ClientSession, *, closes: bool) -> None:
        self._name = name
        self._endpoint = endpoint
        self._client = client
        self._closes = closes
        self._turn = itertools.cycle(endpoint.urls)
        self._running: dict[asyncio.Task[None], Asked] = {}
        self.asked: list[Asked] = []

    async def type(self, edits: Sequence[Edit], source: random.Random, keys_each: int) -> None:
        """Returns when the last answer has ended.

        The first answer at a place is waited for, as by somebody who reads before they type: what takes a GPU
        milliseconds takes a CPU seconds, in which nobody would have typed on.
        """
        for edit in edits:
            typed = list(keys(edit, source, keys_each))
            for key, after in itertools.zip_longest(typed, typed[1:]):
                self._give_up()
                if key.kind in (Kind.COLD, Kind.JUMP):
                    await self._ask(key, f"{self._name}:{edit.path}")
                elif after is None or after.pause_s >= DEBOUNCE_S:
                    self._ask(key, f"{self._name}:{edit.path}")
                await asyncio.sleep(LEAVE_S if after is None else after.pause_s)
        await asyncio.gather(*self._running)

    def _give_up(self) -> None:
        """A key was pressed: nobody will read what is on its way."""
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
