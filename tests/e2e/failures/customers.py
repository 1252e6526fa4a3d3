"""Steady load from mixed customers: streams, whole answers, and people who leave at any moment."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import openai

from contracts.errors import ServiceError
from tests.deployment import Deployment
from tests.e2e.failures.processes import fresh_connections
from tests.fakes.chunks import answer_text
from tests.waiting import eventually


def all_below(root: type[ServiceError]) -> set[str]:
    """The codes of an error class' descendants."""
    return {cls.code for cls in root.__subclasses__()}


class Customers:
    """`async with`: they ask until the block ends, then finish what they have begun.

    Anything but an answer or a service error with Retry-After fails the block.
    """

    def __init__(self, deployment: Deployment, keys: list[str], count: int, seed: int) -> None:
        """Keys are dealt out in turn."""
        self.answered: dict[str, int] = {}
        """Tokens read, by the id of every request that had got status 200."""
        self.finished = 0
        """Answers read to their end."""
        self.refused: Counter[str] = Counter()
        self._url = f"{deployment.url}/v1"
        self._keys = keys
        self._count = count
        self._seed = seed
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Customers:
        self._tasks = [asyncio.create_task(self._customer(number)) for number in range(self._count)]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._closing = True
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        if error[0] is None:
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def have_read(self, more: int) -> None:
        """Return once so many more answers were read to their end."""
        goal = self.finished + more

        async def reached() -> bool:
            if failed := [task for task in self._tasks if task.done()]:
                failed[0].result()
            return self.finished >= goal

        await eventually(reached)

    async def _customer(self, number: int) -> None:
        choose = random.Random(self._seed * 1_000 + number)
        key = self._keys[number % len(self._keys)]
        async with openai.AsyncOpenAI(
            base_url=self._url, api_key=key, max_retries=0, http_client=fresh_connections()
        ) as client:
            while not self._closing:
                tokens = choose.randrange(1, 30)
                content = (
                    f'mock:{{"tokens": {tokens}, "inter_token_s": 0.002, "prompt_tokens": {choose.randrange(1, 99)}}}'
                )
                asked: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": content}]}
                asked["max_tokens"] = 40
                try:
                    if choose.random() < 0.4:
                        await self._ask_whole(client, asked, tokens, choose)
                    else:
                        await self._ask_streamed(client, asked, tokens, choose)
                except openai.APIStatusError as error:
                    assert error.code in all_below(ServiceError), error
                    assert error.status_code == 503, error
                    assert int(error.response.headers["retry-after"]) >= 1
                    self.refused[str(error.code)] += 1
                    await asyncio.sleep(0.02)  # as a customer does, only sooner

    async def _ask_whole(
        self, client: openai.AsyncOpenAI, asked: dict[str, Any], tokens: int, choose: random.Random
    ) -> None:
        patience_s = choose.uniform(0.001, 0.08) if choose.random() < 0.3 else 60.0
        try:
            async with asyncio.timeout(patience_s):
                raw = await client.chat.completions.with_raw_response.create(**asked)
        except TimeoutError:
            assert patience_s < 60, "an answer never came"
            return
        answer = raw.parse()
        assert answer.choices[0].message.content == answer_text(tokens)
        self.answered[raw.headers["x-request-id"]] = tokens
        self.finished += 1

    async def _ask_streamed(
        self, client: openai.AsyncOpenAI, asked: dict[str, Any], tokens: int, choose: random.Random
    ) -> None:
        leave_after = choose.randrange(0, 30) if choose.random() < 0.4 else None
        raw = await client.chat.completions.with_raw_response.create(**asked, stream=True)
        request_id, text = raw.headers["x-request-id"], ""
        self.answered[request_id] = 0
        async with raw.parse() as stream:
            async for chunk in stream:
                text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                self.answered[request_id] = len(text.split())
                if self.answered[request_id] == leave_after:
                    return
        assert text == answer_text(tokens)
        self.finished += 1
