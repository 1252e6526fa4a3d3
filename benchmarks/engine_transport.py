"""SGLang's native gRPC against its HTTP stream as a way to carry tokens to us: CPU a token, in one run.

    python -m benchmarks.engine_transport [--rounds 4] [--streams 8] [--tokens 200]

Needs SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE (tests/sglang/server.py). One real SGLang serves both
ports. The same chats go through the driver's request on our own HTTP connections and through `ChatComplete`, which
takes the same JSON and streams the same chunks, by turns. Counted is this process' CPU (what a gateway would spend) and
that of the engine's front process, which serves both, each over the tokens that came; and the time to the first token.
Neither side decodes a chunk: that costs the same in both. Last line: JSON; the ratios are gRPC's over HTTP's, below 1
is better.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable

import grpc.aio
import msgspec
from google.protobuf.wrappers_pb2 import BytesValue

from benchmarks.needs import missing
from benchmarks.processes import cpu_s
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, Tier
from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.event_splitter import EventSplitter
from engines.http.keys import OneKey
from tests.sglang.server import MODELS, UNSET, SGLangServer, free_port, settings, sglang_process

DRIVER = drivers.get("sglang")
METHOD = "/sglang.runtime.v1.SglangService/ChatComplete"
NO_TOKEN = ""
"""SGLang refuses to start with both `--grpc-port` and `--api-key`, since the gRPC port does not check the key."""
ENDLESS = {"5": 100.0}
"""A logit bias that leaves one token possible, so that every answer reaches its token limit."""
COUNTED = b'"usage":{'


class Answer(msgspec.Struct, frozen=True):
    """ttft_s: the time to the first chunk with a token count. chunks: the number of such chunks."""

    ttft_s: float
    chunks: int


Ask = Callable[[bytes], Awaitable[Answer]]


class Turn(msgspec.Struct, frozen=True):
    """One transport's figures of one round. CPU is per chunk; every chunk is one token here."""

    client_us: float
    engine_us: float
    ttft_ms: float
    tokens_per_s: float


class Http:
    """HTTP, with the gateway's own connections and the driver's request."""

    def __init__(self, server: SGLangServer) -> None:
        self._server = server
        self._connections = EngineConnections(OneKey(NO_TOKEN))

    async def ask(self, body: bytes) -> Answer:
        began, ttft_s, chunks, splitter = time.perf_counter(), 0.0, 0, EventSplitter()
        request = msgspec.structs.replace(DRIVER.generate(generation(1), "tiny"), body=body)
        stream = await self._connections.open(self._server.url, request)
        while piece := await stream.read():
            for payload in splitter.feed(piece):
                if COUNTED in payload:
                    ttft_s = ttft_s or time.perf_counter() - began
                    chunks += 1
        return Answer(ttft_s, chunks)

    async def close(self) -> None:
        await self._connections.close()


class Grpc:
    """gRPC. `OpenAIRequest` and `OpenAIStreamChunk` carry their JSON in field 1, as `BytesValue` does."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._call = self._channel.unary_stream(
            METHOD, request_serializer=BytesValue.SerializeToString, response_deserializer=BytesValue.FromString
        )

    async def ask(self, body: bytes) -> Answer:
        began, ttft_s, chunks = time.perf_counter(), 0.0, 0
        async for message in self._call(BytesValue(value=body)):
            if COUNTED in message.value:
                ttft_s = ttft_s or time.perf_counter() - began
                chunks += 1
        return Answer(ttft_s, chunks)

    async def close(self) -> None:
        await self._channel.close()


def generation(tokens: int, number: int = 0) -> Generation:
    """A chat whose answer has `tokens` tokens."""
    return Generation(
        request_id=f"req_{number:032x}",
        caller=Caller("o", "p", "k"),
        tier=Tier.CHAT,
        model="public",
        prompt=ChatPrompt(({"role": "user", "content": "What is the capital of France?"},)),
        sampling=Sampling(max_tokens=tokens, temperature=0.0, logit_bias=ENDLESS),
    )


async def turn(ask: Ask, engine_pid: int, streams: int, tokens: int, first: int) -> Turn:
    """Send `streams` chats at once over one transport and measure them."""
    bodies = [DRIVER.generate(generation(tokens, first + number), "tiny").body for number in range(streams)]
    engine_s, own_s, wall_s = cpu_s(engine_pid), time.process_time(), time.perf_counter()
    answers = await asyncio.gather(*(ask(body) for body in bodies))
    engine_s, own_s = cpu_s(engine_pid) - engine_s, time.process_time() - own_s
    wall_s = time.perf_counter() - wall_s
    chunks = sum(answer.chunks for answer in answers)
    return Turn(
        own_s / chunks * 1e6,
        engine_s / chunks * 1e6,
        statistics.median(answer.ttft_s for answer in answers) * 1e3,
        chunks / wall_s,
    )


async def compare(rounds: int, streams: int, tokens: int) -> None:
    port = free_port()
    async with sglang_process(MODELS / "slipstream-chat", "tiny", NO_TOKEN, "--grpc-port", str(port)) as engine:
        ways: dict[str, Http | Grpc] = {"http": Http(engine.server), "grpc": Grpc(f"127.0.0.1:{port}")}
        measured: dict[str, list[Turn]] = {name: [] for name in ways}
        try:
            for number in range(rounds + 1):  # the first is not counted: both open their connections
                for index, (name, way) in enumerate(ways.items()):
                    first = (number * len(ways) + index) * streams + 1
                    found = await turn(way.ask, engine.pid, streams, tokens, first)
                    if number:
                        measured[name].append(found)
                        print(f"{name}: client {found.client_us:.1f} us, engine {found.engine_us:.1f} us per token, "
                              f"TTFT {found.ttft_ms:.1f} ms, {found.tokens_per_s:.0f} per s", flush=True)  # fmt: skip
        finally:
            for way in ways.values():
                await way.close()
    report(measured)


def report(measured: dict[str, list[Turn]]) -> None:
    """Print the medians over the rounds, and the ratios of gRPC's to HTTP's."""
    medians = {
        name: {field: statistics.median(getattr(one, field) for one in turns) for field in Turn.__struct_fields__}
        for name, turns in measured.items()
    }
    ratios = {field: round(medians["grpc"][field] / medians["http"][field], 2) for field in Turn.__struct_fields__}
    rounded = {name: {field: round(value, 1) for field, value in found.items()} for name, found in medians.items()}
    print(json.dumps({**rounded, "ratio": ratios}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=200)
    arguments = parser.parse_args()
    if settings() is None:
        missing(UNSET)
    asyncio.run(compare(arguments.rounds, arguments.streams, arguments.tokens))


if __name__ == "__main__":
    main()
