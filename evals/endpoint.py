"""Sends items to an endpoint as a customer would, many at once: conversations in OpenAI's format, gaps in Mistral's."""

from __future__ import annotations

import asyncio
import dataclasses
import http
from collections.abc import Sequence
from typing import Any

import aiohttp

from evals.asked import body_of, path_of, text_of
from evals.slices.item import Item, Message, Question

TRIES = 6
"""Tries of one question that is refused temporarily."""
LATER = (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE)
LONGEST_PAUSE_S = 60.0


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """The endpoint of a gateway, or of an engine itself."""

    url: str
    """URL with /v1."""
    key: str
    model: str
    at_once: int = 8
    timeout_s: float = 300.0
    """Timeout of one answer."""


async def answer_all(endpoint: Endpoint, items: Sequence[Item]) -> list[str]:
    """The greedy answers, in the order of the items.

    A request that is refused temporarily (429, 503) is retried after its Retry-After. Raises aiohttp.ClientError if an
    answer cannot be obtained: a table must be complete.
    """
    slots = asyncio.Semaphore(endpoint.at_once)
    async with _session(endpoint) as session:

        async def one(item: Item) -> str:
            async with slots:
                return await _ask(endpoint, session, path_of(item), body_of(item, endpoint.model))

        return await asyncio.gather(*(one(item) for item in items))


async def converse(endpoint: Endpoint, questions: Sequence[str], max_tokens: int = 128) -> list[str]:
    """The greedy answers of one conversation, each question asked after the answers to those before it."""
    messages: list[Message] = []
    answers = []
    async with _session(endpoint) as session:
        for question in questions:
            messages.append({"role": "user", "content": question})
            turn = Question(tuple(messages), "", lambda _: 0.0, max_tokens, cluster="")
            answers.append(await _ask(endpoint, session, path_of(turn), body_of(turn, endpoint.model)))
            messages.append({"role": "assistant", "content": answers[-1]})
    return answers


def _session(endpoint: Endpoint) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        headers={"authorization": f"Bearer {endpoint.key}"}, timeout=aiohttp.ClientTimeout(total=endpoint.timeout_s)
    )


async def _ask(endpoint: Endpoint, session: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> str:
    url = f"{endpoint.url}{path.removeprefix('/v1')}"
    for tries_left in reversed(range(TRIES)):
        async with session.post(url, json=body) as response:
            if response.status == 200:
                return text_of(await response.json())
            if response.status not in LATER or not tries_left:
                text = (await response.text())[:500]
                raise aiohttp.ClientError(f"{endpoint.url}: HTTP {response.status}: {text}")
            pause_s = _pause_s(response.headers.get("retry-after", ""))
        await asyncio.sleep(pause_s)
    raise AssertionError("the last try returns or raises")


def _pause_s(retry_after: str) -> float:
    """The seconds of the header, or one second if it has none."""
    return min(float(retry_after), LONGEST_PAUSE_S) if retry_after.isdecimal() else 1.0
