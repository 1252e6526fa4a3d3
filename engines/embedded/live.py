"""A request as the event loop sees it while the engine works on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from contracts.errors import EngineFailed
from engines.embedded.history import RequestUsage
from engines.embedded.output import Delta, Speculated, Timing
from engines.embedded.request import Request


class LiveRequest:
    """Collects what the engine reports of one request. One task may wait for news."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.failed = False
        """The engine broke down; no more news will come."""
        self.ended = asyncio.Event()
        """Set when every choice has ended, or the engine failed."""
        self._unfinished = request.choices
        self._completion = [0] * request.choices
        self._cached = [0] * request.choices
        self._read = [len(ids) for ids in request.prompts for _ in range(request.choices_per_prompt)]
        """Of each choice's prompt: all of it, unless it ended before that was read."""
        self._speculated: dict[int, Speculated] = {}
        self._timings: dict[int, Timing] = {}
        self.relay: Callable[[], bool] | None = None
        """Called when there is news, instead of waking whoever waits; false: wake them."""
        self._news: list[Delta] = []
        self._waiter: asyncio.Future[None] | None = None

    @property
    def finished(self) -> bool:
        """Every choice has ended."""
        return self._unfinished == 0

    def put(self, delta: Delta) -> None:
        """Add news; called by the service for every delta of this request, before one `tell`."""
        self._completion[delta.index] = delta.completion_tokens
        self._cached[delta.index] = delta.cached_tokens
        if delta.finish is not None:
            self._read[delta.index] = delta.prompt_tokens
            self._unfinished -= 1
            if delta.speculated is not None:
                self._speculated[delta.index] = delta.speculated
            if delta.timing is not None:
                self._timings[delta.index] = delta.timing
            if self.finished:
                self.ended.set()
        self._news.append(delta)

    def fail(self) -> None:
        """The engine broke down."""
        self.failed = True
        self.ended.set()
        self.tell()

    def tell(self) -> None:
        """Hand on the news that were put."""
        if self.relay is not None and self.relay():
            return
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def peek(self) -> list[Delta]:
        """What `take` would give."""
        return self._news

    def take(self) -> list[Delta]:
        """Everything since the last call. Raises EngineFailed when the engine broke down."""
        if self.failed:
            raise EngineFailed("The engine broke down.")
        taken, self._news = self._news, []
        return taken

    async def wait(self) -> None:
        """Return when something was told that no relay took care of."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    async def news(self) -> list[Delta]:
        """Everything since the last call, at least one delta; waits if there is none. Raises EngineFailed as `take`."""
        while not self._news and not self.failed:
            await self.wait()
        return self.take()

    def usage(self) -> RequestUsage:
        """Counts so far."""
        per_prompt = self.request.choices_per_prompt
        prompt = sum(max(self._read[at : at + per_prompt]) for at in range(0, self.request.choices, per_prompt))
        completion = sum(self._completion)
        # the first choice of a prompt tells how much of it was cached before this request
        cached = sum(self._cached[::per_prompt])
        drafted = range(self.request.choices) if self._speculated else ()
        speculated = tuple(self._speculated.get(index, Speculated()) for index in drafted)
        timings = tuple(timing for _, timing in sorted(self._timings.items()))
        return RequestUsage(prompt, prompt + completion, completion, cached, speculated, timings)
