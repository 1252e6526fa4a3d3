"""From a gap to its completion: remembered, or asked for once the user pauses, and again when the gateway said when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from slipstream.lsp.config import LanguageServerConfig
from slipstream.lsp.gap import Gap
from slipstream.lsp.gateway import MODEL_NOT_FOUND, Gateway, GatewayRefused
from slipstream.lsp.memory import Answer, Memory

LONGEST_WAIT_S = 5.0
"""For the time that a refusal says; who has to wait longer is told so, and asks by typing on."""
NOTHING = Answer("", "")


class Completer:
    """clock: seconds, as time.monotonic."""

    def __init__(
        self, config: LanguageServerConfig, gateway: Gateway, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._gateway = gateway
        self._clock = clock
        self._memory = Memory(config.kept_answers)
        self._model = config.model
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
        self._model = self._model or await self._gateway.autocomplete_model()
        try:
            answer = await self._gateway.complete(self._request(gap))
        except GatewayRefused as refused:
            if refused.code == MODEL_NOT_FOUND:  # it may have been renamed since it was found
                self._model = self._config.model
            raise
        return Answer(answer.completion_id, answer.text.rstrip())

    def _request(self, gap: Gap) -> dict[str, Any]:
        """The body of POST /v1/completions."""
        body = {
            "model": self._model,
            "prompt": gap.prefix,
            "max_tokens": self._config.max_tokens,
            "temperature": 0,
            "stop": ["\n\n"] if gap.block else ["\n"],
            "stream": False,
        }
        if not gap.suffix:
            # at the end of a file nothing is filled: the text goes on, and is not judged
            return body
        sure = {"min_confidence": self._config.min_confidence} if self._config.min_confidence else {}
        return {**body, **sure, "suffix": gap.suffix}
