"""Asks an endpoint in OpenAI's format, gaps in Mistral's, as a customer would, many items at once."""

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
"""Of one question, where the answer is to come later."""
LATER = (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE)
LONGEST_PAUSE_S = 60.0


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Where to ask: the gateway, or an engine itself."""

    url: str
    """With /v1."""
    key: str
    model: str
    at_once: int = 8
    timeout_s: float = 300.0
    """For one answer."""


async def answer_all(endpoint: Endpoint, items: Sequence[Item]) -> list[str]:
    """The greedy answers, in the order of the items.

    What is refused for now (429, 503) is asked again after the Retry-After. Raises aiohttp.ClientError when an answer
    cannot be had: a table with holes is no table.
    """
    places = asyncio.Semaphore(endpoint.at_once)
    async with _session(endpoint) as session:

        async def one(item: Item) -> str:
            async with places:
                return await _ask(endpoint, session, path_of(item), body_of(item, endpoint.model))

        return await asyncio.gather(*(one(item) for item in items))


async def converse(endpoint: Endpoint, questions: Sequence[str], max_tokens: int = 128) -> list[str]:
    """The greedy answers of one conversation, each question asked after the answers to those before it."""
    messages: list[Message] = []
    answers = []
    async with _session(endpoint) as session:
        for question in questions:
            messages.append({"role": "user", "content": question})
            asked = Question(tuple(messages), "", lambda _: 0.0, max_tokens, cluster="")
            answers.append(await _ask(endpoint, session, path_of(asked), body_of(asked, endpoint.model)))
            messages.append({"role": "assistant", "content": answers[-1]})
    return answers


def _session(endpoint: Endpoint) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        headers={"authorization": f"Bearer {endpoint.key}"}, timeout=aiohttp.ClientTimeout(total=endpoint.timeout_s)
    )


async def _ask(endpoint: Endpoint, session: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> str:
    url = f"{endpoint.url}{path.removeprefix('/v1')}"
    for left in reversed(range(TRIES)):
        async with session.post(url, json=body) as response:
            if response.status == 200:
                return text_of(await response.json())
            if response.status not in LATER or not left:
                said = (await response.text())[:500]
                raise aiohttp.ClientError(f"{endpoint.url}: HTTP {response.status}: {said}")
            pause_s = _pause_s(response.headers.get("retry-after", ""))
        await asyncio.sleep(pause_s)
    raise AssertionError("the last try returns or raises")


def _pause_s(retry_after: str) -> float:
    """As the header says in seconds; a second where it says none."""
    return min(float(retry_after), LONGEST_PAUSE_S) if retry_after.isdecimal() else 1.0
