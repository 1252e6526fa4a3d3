"""From a gap to its completion: remembered, or asked for once the user pauses, and again when the gateway said when."""

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
"""For the time that a refusal says; who has to wait longer is told so, and asks by typing on."""
NOTHING = Answer("", "")


class Completer:
    """clock: seconds, as time.monotonic."""

    def __init__(
        self, config: LanguageServerConfig, gateway: Gateway, user: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """user: what the gateway tells this editor's requests from others by."""
        self._config = config
        self._gateway = gateway
        self._clock = clock
        self._memory = Memory(config.kept_answers)
        self._user = user
        self._not_before_s = clock()

    async def complete(self, gap: Gap, *, invoked: bool) -> Answer:
        """What goes into the gap; without text, nothing does. invoked: the user asked and is not made to wait.

        Cancelled, it cancels its request. Raises GatewayRefused.
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
        await asyncio.sleep(self._not_before_s - self._clock())  # at once, mostly: the time is past
        answer = await self._gateway.complete(self._request(gap))
        return Answer(answer.completion_id, answer.text.rstrip())

    def _request(self, gap: Gap) -> dict[str, Any]:
        """The body of POST /v1/completions as editors ask: a gap always, at the end of a file too."""
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
