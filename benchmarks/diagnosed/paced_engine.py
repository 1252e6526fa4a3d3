"""Engines on the wall clock that speak SGLang's HTTP: continuous batching, chunked prefill, a prefix cache and a
bounded KV pool, whose steps take as long as they are told to.

They queue, prefill, decode and retract by what they are asked, as engines do; only the arithmetic of a step is replaced
by waiting. `POST /control` sets a replica's `Pace`, `POST /flush_cache` empties its cache.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvloop
from aiohttp import web

MODEL = "paced"
CHARACTERS = 4
"""Characters per token."""
BLOCK_TOKENS = 64
CHUNK_TOKENS = 2_048
MAX_BODY_BYTES = 1 << 24


class Pace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The speed and the capacity of a replica."""

    token_s: float = 0.012
    """Time of a step of one sequence."""
    shared_s: float = 0.0004
    """Additional time of a step for each further sequence in the batch."""
    prefill_s: float = 0.00004
    """Time per token of a prompt."""
    max_running: int = 24
    capacity_tokens: int = 400_000
    """KV pool of running sequences."""
    cache_tokens: int = 400_000
    """Prefix cache."""


@dataclass(eq=False)
class Sequence:
    """One request in an engine. Times are the loop's, in seconds."""

    prompt_tokens: int
    output_tokens: int
    blocks: list[bytes]
    arrived_s: float
    events: asyncio.Queue[str]
    """`token` for each, then `end`."""
    cached_tokens: int = 0
    to_prefill: int = 0
    generated: int = 0
    started_s: float | None = None
    first_s: float | None = None
    retractions: int = 0
    gone: bool = False

    @property
    def tokens(self) -> int:
        """Tokens in the KV pool that it does not share with the cache."""
        return self.prompt_tokens - self.cached_tokens + self.generated


@dataclass
class Replica:
    """One engine."""

    pace: Pace = field(default_factory=Pace)
    waiting: deque[Sequence] = field(default_factory=deque)
    prefilling: list[Sequence] = field(default_factory=list)
    decoding: list[Sequence] = field(default_factory=list)
    cache: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    something: asyncio.Event = field(default_factory=asyncio.Event)
    prompt_total: int = 0
    cached_total: int = 0
    generated_total: int = 0

    @property
    def used_tokens(self) -> int:
        """Tokens of the running sequences."""
        return sum(each.tokens for each in (*self.prefilling, *self.decoding))

    async def run(self) -> None:
        """Step forever."""
        clock = asyncio.get_running_loop().time
        while True:
            if not (self.waiting or self.prefilling or self.decoding):
                self.something.clear()
                await self.something.wait()
            began_s = clock()
            self._admit(began_s)
            done, step_s = self._step()
            await asyncio.sleep(step_s - (clock() - began_s))
            self._finish(done, clock())

    def submit(self, sequence: Sequence) -> None:
        """Take a request."""
        self.prompt_total += sequence.prompt_tokens
        self.waiting.append(sequence)
        self.something.set()

    def _admit(self, now_s: float) -> None:
        while self.waiting and len(self.prefilling) + len(self.decoding) < self.pace.max_running:
            sequence = self.waiting[0]
            if sequence.gone:
                self.waiting.popleft()
                continue
            if sequence.started_s is None:
                sequence.cached_tokens = min(self._cached(sequence.blocks), sequence.prompt_tokens - 1)
            alone = not self.prefilling and not self.decoding
            if not alone and self.used_tokens + sequence.tokens > self.pace.capacity_tokens:
                return
            self.waiting.popleft()
            if sequence.started_s is None:
                sequence.started_s = now_s
                self.cached_total += sequence.cached_tokens
                sequence.to_prefill = sequence.prompt_tokens - sequence.cached_tokens
            else:
                sequence.to_prefill = sequence.tokens  # it was retracted: all of its own tokens again
            self.prefilling.append(sequence)

    def _step(self) -> tuple[list[Sequence], float]:
        """The sequences whose prompts this step finishes, and its duration."""
        budget, done = CHUNK_TOKENS, []
        for sequence in self.prefilling:
            part = min(budget, sequence.to_prefill)
            sequence.to_prefill -= part
            budget -= part
            if not sequence.to_prefill:
                done.append(sequence)
        step_s = (CHUNK_TOKENS - budget) * self.pace.prefill_s
        if self.decoding or done:
            step_s += self.pace.token_s + self.pace.shared_s * max(len(self.decoding) - 1, 0)
        return done, step_s

    def _finish(self, done: list[Sequence], now_s: float) -> None:
        for sequence in done:
            self.prefilling.remove(sequence)
            self._keep(sequence.blocks)
            if sequence.first_s is None:
                sequence.first_s = now_s
        for sequence in [*self.decoding, *done]:
            if sequence.gone:
                continue
            sequence.generated += 1
            self.generated_total += 1
            sequence.events.put_nowait("token")
            if sequence.generated >= sequence.output_tokens:
                sequence.gone = True
                sequence.events.put_nowait("end")
        self.decoding = [each for each in (*self.decoding, *done) if not each.gone]
        self.prefilling = [each for each in self.prefilling if not each.gone]
        while self.used_tokens > self.pace.capacity_tokens and len(self.decoding) > 1:
            newest = self.decoding.pop()
            newest.retractions += 1
            self.waiting.appendleft(newest)

    def _cached(self, blocks: list[bytes]) -> int:
        found = len(list(itertools.takewhile(self.cache.__contains__, blocks)))
        for block in blocks[:found]:
            self.cache.move_to_end(block)
        return found * BLOCK_TOKENS

    def _keep(self, blocks: list[bytes]) -> None:
        for block in blocks:
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) * BLOCK_TOKENS > self.pace.cache_tokens:
            self.cache.popitem(last=False)


def blocks_of(text: bytes) -> list[bytes]:
    """A chained hash for each whole block."""
    found, chain = [], b""
    size = BLOCK_TOKENS * CHARACTERS
    for start in range(0, len(text) - size + 1, size):
        chain = hashlib.blake2b(chain + text[start : start + size], digest_size=16).digest()
        found.append(chain)
    return found


def application(replica: Replica) -> web.Application:
    """SGLang's endpoints that the driver uses."""

    async def generate(request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        text = "\n".join(f"{message['role']}: {message['content']}" for message in body["messages"]).encode()
        now_s = asyncio.get_running_loop().time()
        sequence = Sequence(
            max(len(text) // CHARACTERS, 2), max(int(body.get("max_tokens") or 16), 1), blocks_of(text), now_s,
            asyncio.Queue(),
        )  # fmt: skip
        replica.submit(sequence)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        try:
            await _answer(request, response, body, sequence)
        finally:
            sequence.gone = True
        return response

    async def control(request: web.Request) -> web.Response:
        replica.pace = msgspec.json.decode(await request.read(), type=Pace)
        replica.something.set()
        return web.json_response({})

    async def flush(request: web.Request) -> web.Response:
        replica.cache.clear()
        return web.json_response({})

    async def loads(request: web.Request) -> web.Response:
        rank = {
            "dp_rank": 0, "num_running_reqs": len(replica.prefilling) + len(replica.decoding),
            "num_waiting_reqs": len(replica.waiting), "num_used_tokens": replica.used_tokens,
            # a router that knew how small the pool is would send less, and nothing would be retracted
            "max_total_num_tokens": Pace().capacity_tokens,
        }  # fmt: skip
        return web.json_response({"version": "paced", "loads": [rank]})

    async def other(request: web.Request) -> web.Response:
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        if request.path == "/metrics":
            totals = {
                "prompt_tokens_total": replica.prompt_total, "cached_tokens_total": replica.cached_total,
                "generation_tokens_total": replica.generated_total,
            }  # fmt: skip
            lines = [f'sglang:{name}{{model_name="{MODEL}"}} {float(total)}\n' for name, total in totals.items()]
            return web.Response(text="".join(lines))
        return web.json_response({"model_path": MODEL, "served_model_name": MODEL, "is_generation": True})

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", generate)
    app.router.add_post("/control", control)
    app.router.add_post("/flush_cache", flush)
    app.router.add_get("/v1/loads", loads)
    app.router.add_route("*", "/{path:.*}", other)
    return app


async def _answer(request: web.Request, response: web.StreamResponse, body: dict[str, Any], sequence: Sequence) -> None:
    head = {"id": body.get("rid", "none"), "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    alternatives = int(body.get("top_logprobs") or 0) if body.get("logprobs") else 0

    async def send(choices: list[dict[str, Any]], **more: object) -> None:
        await response.write(b"data: " + msgspec.json.encode({**head, "choices": choices, **more}) + b"\n\n")

    number = 0
    while await sequence.events.get() == "token":
        if not number:
            await response.prepare(request)
            await send([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        text = f" t{number}"
        choice: dict[str, Any] = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        if alternatives:
            others = [{"token": f" alternative {one}", "bytes": None, "logprob": -1.5} for one in range(alternatives)]
            token = {"token": text, "bytes": None, "logprob": -0.5, "top_logprobs": others}
            choice["logprobs"] = {"content": [token]}
        await send([choice])
        number += 1
    await send([{"index": 0, "delta": {}, "finish_reason": "length"}])
    assert sequence.started_s is not None
    assert sequence.first_s is not None
    timing = {
        "queue_ms": (sequence.started_s - sequence.arrived_s) * 1e3,
        "prefill_ms": (sequence.first_s - sequence.started_s) * 1e3,
        "retractions": sequence.retractions,
    }
    await send([], sglext={"request_timing": timing})
    usage = {
        "prompt_tokens": sequence.prompt_tokens, "completion_tokens": number,
        "total_tokens": sequence.prompt_tokens + number,
        "prompt_tokens_details": {"cached_tokens": sequence.cached_tokens},
    }  # fmt: skip
    await send([], usage=usage)
    await response.write(b"data: [DONE]\n\n")


async def serve(replicas: int) -> None:
    """Print the ports, then serve until killed."""
    ports, stepping = [], []
    for _ in range(replicas):
        replica = Replica()
        stepping.append(asyncio.create_task(replica.run()))
        runner = web.AppRunner(application(replica), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.append(runner.addresses[0][1])
    print("listening", *ports, flush=True)
    await asyncio.gather(*stepping)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1)
    uvloop.run(serve(parser.parse_args().replicas))


if __name__ == "__main__":
    main()
