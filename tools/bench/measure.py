"""Runs one load: measures how many tokens prompts take, then sends the load and collects the responses."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from contracts.errors import ConfigError
from contracts.fill_in_the_middle import Healing
from tools.bench.answer import Answer
from tools.bench.client import Client, Refused
from tools.bench.load import Load
from tools.bench.prompts import WORDS, Prompts
from tools.simulator.arrival import Arrival
from tools.simulator.trace import TRACE_BLOCK_TOKENS

SAMPLES = (1, 256)
"""Words in the two prompts whose `usage` gives the shortest prompt, the tokens per word and the template's tokens."""
LONGEST_TAIL_S = 120.0
"""Time limit for responses that are still running when the last request is sent."""
PROGRESS_EVERY_S = 1.0
PATHS = {"chat": "/chat/completions", "completions": "/completions"}


class Target(msgspec.Struct, frozen=True):
    """The server that receives the load. url: without `/v1`. endpoint: a key of `PATHS`."""

    url: str
    key: str
    model: str
    endpoint: str


class Listed(msgspec.Struct, frozen=True):
    """A model of `GET /v1/models`. tier, healing: only a Slipstream gateway sends them. max_model_len: its context
    length, if the server lists it."""

    id: str
    tier: str = "chat"
    max_model_len: int | None = None
    healing: Healing | None = None

    @property
    def endpoint(self) -> str:
        """The endpoint that serves the model."""
        return "completions" if self.tier == "autocomplete" else "chat"


class _Models(msgspec.Struct):
    data: list[Listed]


async def models(url: str, key: str) -> list[Listed]:
    """The models that the key may use. Raises ConfigError."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        timeout = aiohttp.ClientTimeout(total=10.0)
        async with (
            aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
            session.get(f"{url}/v1/models") as response,
        ):
            body = await response.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ConfigError(f"{url}: no server answers ({error or 'timeout'}); check --url") from None
    if response.status != 200:
        raise ConfigError(f"{url}: GET /v1/models returned {response.status}: {body[:300].decode(errors='replace')}")
    try:
        return msgspec.json.decode(body, type=_Models).data
    except msgspec.DecodeError as error:
        raise ConfigError(f"{url}: GET /v1/models did not return a list of models ({error}); check --url") from None


class Course(msgspec.Struct):
    """The answers so far, in order of sending."""

    answers: list[Answer] = []
    running: int = 0
    late_s: float = 0.0
    """The largest delay between a request's time and its sending."""
    ignore_eos: bool = True
    """Whether responses have the exact length."""
    least_prompt_tokens: int = 1
    """Length of the shortest possible prompt: one word and the template. Shorter prompts are extended to it."""

    @property
    def lengthened(self) -> int:
        """Number of requests whose prompt was to be shorter than `least_prompt_tokens`."""
        return sum(answer.arrival.prompt_tokens < self.least_prompt_tokens for answer in self.answers)


async def measure(target: Target, load: Load, stop: asyncio.Event, tell: Callable[[Course, float], None]) -> Course:
    """stop: ends the run early and keeps its answers. tell: called every second with the course and its duration.

    Raises ConfigError if the server refuses the first request.
    """
    course = Course()
    async with Client(target.url, target.key, PATHS[target.endpoint]) as client:
        bodies = await _bodies(client, target, load, course)
        loop = asyncio.get_running_loop()
        begun = loop.time()

        async def one(number: int, arrival: Arrival) -> Answer:
            answer = Answer(arrival, sent_s=loop.time() - begun)
            course.answers.append(answer)
            course.running += 1
            try:
                await client.send(answer, bodies(number, arrival))
            finally:
                course.running -= 1
            return answer

        async def watch() -> None:
            while True:
                await asyncio.sleep(PROGRESS_EVERY_S)
                tell(course, loop.time() - begun)

        numbered = enumerate(load.arrivals())

        async def stream() -> None:
            for number, arrival in numbered:  # shared by all streams
                if loop.time() - begun >= load.whole_s:
                    return
                if (await one(number, arrival)).fault:
                    await asyncio.sleep(0.1)  # refusals are fast: do not send thousands

        async def timed() -> None:
            async with asyncio.TaskGroup() as group:
                for number, arrival in numbered:
                    await asyncio.sleep(max(arrival.at_s - (loop.time() - begun), 0))
                    course.late_s = max(course.late_s, loop.time() - begun - arrival.at_s)
                    group.create_task(one(number, arrival))

        sending = [asyncio.create_task(work()) for work in ([stream] * load.streams if load.closed else [timed])]
        watching, stopping = asyncio.create_task(watch()), asyncio.create_task(stop.wait())
        everything = asyncio.gather(*sending)
        try:
            limit_s = load.whole_s + LONGEST_TAIL_S
            await asyncio.wait((everything, stopping), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if everything.done():
                everything.result()
        finally:
            for task in (*sending, watching, stopping):
                task.cancel()
            await asyncio.gather(everything, watching, stopping, return_exceptions=True)
    return course


async def _bodies(client: Client, target: Target, load: Load, course: Course) -> Callable[[int, Arrival], bytes]:
    """A function that builds the body of a numbered request."""
    seed = secrets.token_hex(4)  # unique to this run: prompts of an earlier run are in caches
    counted = []
    for words in SAMPLES:
        text = " ".join(Prompts(f"sample {seed}", WORDS, 1).of(words, Arrival(0.0, words, 1)))
        try:
            try:
                answer = await client.ask(_body(target, text, 1, course.ignore_eos))
            except Refused as refused:
                if "ignore_eos" not in str(refused):
                    raise
                course.ignore_eos = False
                answer = await client.ask(_body(target, text, 1, False))
        except Refused as refused:
            raise ConfigError(f"{target.url}: the first request was refused ({refused.fault}): {refused}") from None
        if answer.prompt_tokens is None:
            raise ConfigError(f"{target.url}: its stream has no usage, which is needed to count tokens")
        counted.append(answer.prompt_tokens)
    per_word = max((counted[1] - counted[0]) / (SAMPLES[1] - SAMPLES[0]), 0.05)
    template_tokens = max(round(counted[0] - SAMPLES[0] * per_word), 0)
    course.least_prompt_tokens = counted[0]
    prompts = Prompts(seed, WORDS, TRACE_BLOCK_TOKENS, 1 / per_word)

    def body(number: int, arrival: Arrival) -> bytes:
        inner = msgspec.structs.replace(arrival, prompt_tokens=max(arrival.prompt_tokens - template_tokens, 1))
        text = " ".join(prompts.of(number, inner))
        return msgspec.json.encode(_body(target, text, arrival.output_tokens, course.ignore_eos))

    return body


def _body(target: Target, text: str, output_tokens: int, ignore_eos: bool) -> dict[str, Any]:
    prompt: dict[str, Any] = (
        {"messages": [{"role": "user", "content": text}]} if target.endpoint == "chat" else {"prompt": text}
    )
    exact = {"ignore_eos": True} if ignore_eos else {}
    return {
        "model": target.model, **prompt, "max_tokens": output_tokens, "temperature": 0, "stream": True,
        "stream_options": {"include_usage": True}, **exact,
    }  # fmt: skip
