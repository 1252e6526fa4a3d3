"""Completes a gap from memory, or by a request once the user pauses, which is retried when the gateway says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tools.lsp.config import LanguageServerConfig
from tools.lsp.gap import Gap
from tools.lsp.gateway import Gateway, GatewayRefused
from tools.lsp.memory import Answer, Memory

LONGEST_WAIT_S = 5.0
"""Longest wait after a refusal. If the gateway names a longer one, the user sees the refusal and types on to retry."""
NOTHING = Answer("", "")


class Completer:
    """clock: seconds, as time.monotonic."""

    def __init__(
        self, config: LanguageServerConfig, gateway: Gateway, user: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """user: identifies this editor's requests to the gateway."""
        self._config = config
        self._gateway = gateway
        self._clock = clock
        self._memory = Memory(config.kept_answers)
        self._user = user
        self._not_before_s = clock()

    async def complete(self, gap: Gap, *, invoked: bool) -> Answer:
        """The completion of the gap; its text may be empty. invoked: the user requested it, so that it starts at once.

        Cancellation cancels the request too. Raises GatewayRefused.
        """
        if (known := self._memory.find(gap)) is not None:
            return known
        if not invoked:
            await asyncio.sleep(self._config.debounce_ms / 1_000)
        if self._not_before_s - self._clock() > LONGEST_WAIT_S:
            return NOTHING
        answer = await self._ask_once_more(gap)
        self._memory.keep(gap, answer)
        return answer

    async def _ask_once_more(self, gap: Gap) -> Answer:
        """The answer to the request, or to a second one after the time that the refusal of the first names."""
        try:
            return await self._ask(gap)
        except GatewayRefused as refused:
            if refused.retry_after_s is None:
                raise
            self._not_before_s = self._clock() + refused.retry_after_s
            if refused.retry_after_s > LONGEST_WAIT_S:
                raise
        return await self._ask(gap)

    async def _ask(self, gap: Gap) -> Answer:
        await asyncio.sleep(self._not_before_s - self._clock())  # usually no wait: the time is past
        answer = await self._gateway.complete(self._request(gap))
        return Answer(answer.completion_id, answer.text.rstrip())

    def _request(self, gap: Gap) -> dict[str, Any]:
        """The body of POST /v1/completions, always with a gap, even at the end of a file."""
        body: dict[str, Any] = {
            "segments": {"prefix": gap.prefix, "suffix": gap.suffix},
            "user": self._user,
            "max_tokens": self._config.max_tokens,
            "temperature": 0,
        }
        if gap.path:
            body["segments"]["filepath"] = gap.path
        if gap.language:
            body["language"] = gap.language
        if self._config.model:
            body["model"] = self._config.model
        if self._config.min_confidence is not None:
            body["min_confidence"] = self._config.min_confidence
        return body
