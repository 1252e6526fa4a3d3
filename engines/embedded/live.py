"""The event loop's side of a request that the engine computes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from contracts.errors import EngineFailed
from engines.embedded.history import RequestUsage
from engines.embedded.output import Delta, Speculated, Timing
from engines.embedded.request import Request


class LiveRequest:
    """Collects the engine's deltas of one request. One task may wait for them."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.failed = False
        """Whether the engine failed, so that no more deltas will arrive."""
        self.ended = asyncio.Event()
        """Set when every choice has ended or the engine has failed."""
        self._unfinished = request.choices
        self._completion = [0] * request.choices
        self._cached = [0] * request.choices
        self._read = [len(ids) for ids in request.prompts for _ in range(request.choices_per_prompt)]
        """Number of prompt tokens read for each choice: all of them, unless the choice ended earlier."""
        self._speculated: dict[int, Speculated] = {}
        self._timings: dict[int, Timing] = {}
        self.relay: Callable[[], bool] | None = None
        """Called for new deltas before the waiting task is woken; if it returns True, the task is not woken."""
        self._news: list[Delta] = []
        self._waiter: asyncio.Future[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether every choice has ended."""
        return self._unfinished == 0

    def put(self, delta: Delta) -> None:
        """Add a delta. The service calls it for every delta of this request, and then calls `tell` once."""
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
        """Record that the engine failed."""
        self.failed = True
        self.relay = None
        self.ended.set()
        self.tell()

    def tell(self) -> None:
        """Deliver the added deltas."""
        if self.relay is not None and self.relay():
            return
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def peek(self) -> list[Delta]:
        """The deltas that `take` would return."""
        return self._news

    def take(self) -> list[Delta]:
        """All deltas since the last call. Raises EngineFailed if the engine failed."""
        if self.failed:
            raise EngineFailed("The engine failed.")
        taken, self._news = self._news, []
        return taken

    async def wait(self) -> None:
        """Wait for deltas that no relay has taken."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    async def news(self) -> list[Delta]:
        """All deltas since the last call, at least one; waits if there is none yet. Raises EngineFailed like `take`."""
        while not self._news and not self.failed:
            await self.wait()
        return self.take()

    def usage(self) -> RequestUsage:
        """The usage so far."""
        per_prompt = self.request.choices_per_prompt
        prompt = sum(max(self._read[at : at + per_prompt]) for at in range(0, self.request.choices, per_prompt))
        completion = sum(self._completion)
        # the first choice of a prompt counts the tokens that were cached before this request
        cached = sum(self._cached[::per_prompt])
        drafted = range(self.request.choices) if self._speculated else ()
        speculated = tuple(self._speculated.get(index, Speculated()) for index in drafted)
        timings = tuple(timing for _, timing in sorted(self._timings.items()))
        return RequestUsage(prompt, prompt + completion, completion, cached, speculated, timings)
