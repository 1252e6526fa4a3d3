"""Two real SGLang replicas behind the router: hit rate and time to first token against round robin, and how well
`cached_tokens` is predicted for plain, tool, multi-turn and system-prompt chats."""

from __future__ import annotations

import itertools
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, Tier
from contracts.lease import Ask, LeaseEnd
from contracts.prefix import of_generation
from contracts.usage import Finish, Usage
from engines import drivers
from engines.answers import usage_of
from engines.connection import EngineConnections
from engines.tokenizer.tokenizer import Tokenizer
from router.client import RouterClient
from router.client_config import RouterClientConfig
from router.config import RouterConfig
from router.core.record import Record
from router.server import RouterServer
from tests.router.fakes import until
from tests.sglang.server import MODELS, SGLangServer, sglang_server

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]
DRIVER = drivers.get("sglang")
CONVERSATIONS = 6
TURNS = 4
TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": f"look_up_{name}",
            "description": f"Looks up {name} in the catalogue and returns everything that is known about it. " * 3,
            "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    }
    for name in ("rivers", "mountains", "cities")
)
_numbers = itertools.count(1)


class Measured(msgspec.Struct):
    """One answered request."""

    kind: str
    ttft_s: float
    usage: Usage
    text: str
    predicted: int


class Fleet:
    """Router, gateway client and engines for one policy."""

    def __init__(self, servers: tuple[SGLangServer, ...], policy: str) -> None:
        self.servers = {f"sglang-{number}": server for number, server in enumerate(servers)}
        self.token = servers[0].token
        self.connections = EngineConnections(self.token)
        self.router = RouterServer(RouterConfig(port=0, policy=policy), self.token, self.connections, drivers.get)
        self.tokenizer = Tokenizer.load(servers[0].folder)
        self.salt = f"{policy}-{next(_numbers)}-{os.urandom(4).hex()}"
        """Keeps the runs' caches apart: the engines are the same."""

    async def start(self) -> None:
        await self.router.start()
        address = f"127.0.0.1:{self.router.port}"
        self.client = RouterClient(RouterClientConfig(address=address), self.token, "gateway")
        await self.client.start()
        assert await self.client.wait_connected(20)
        replicas = tuple(Replica(name, server.url) for name, server in self.servers.items())
        model = Model("public", Tier.CHAT, "pool", 2_048, engine_model="tiny")
        self.client.publish(DesiredState(1, (model,), (Pool("pool", "sglang", replicas),)))
        fleet = self.router.dispatcher.fleet
        await until(lambda: len(fleet.replicas) == len(replicas) and all(one.usable for one in fleet.replicas.values()))

    async def stop(self) -> None:
        await self.client.stop()
        await self.router.stop()
        await self.connections.close()

    async def chat(self, kind: str, messages: tuple[dict[str, Any], ...], tools: Any = None) -> Measured:
        request_id = f"req_{next(_numbers):032x}"
        sampling = Sampling(max_tokens=24, temperature=0.0)
        prompt = ChatPrompt(messages, tools=tools)
        generation = Generation(
            request_id, Caller("o", "p", "k"), Tier.CHAT, "public", prompt, sampling, cache_salt=self.salt
        )
        chain = of_generation(generation)
        tokens = len(self.tokenizer.chat_ids(messages, tools))
        lease = await self.client.acquire(
            Ask(request_id, request_id, 0, Tier.CHAT, "public", tokens, 24, 60.0, "o", chain.kind, chain.hashes)
        )
        started = time.perf_counter()
        stream = await self.connections.open(lease.engine.url, DRIVER.generate(generation, "tiny"))
        body, ttft_s = b"", 0.0
        while piece := await stream.read():
            ttft_s = ttft_s or time.perf_counter() - started
            body += piece
        assert stream.status == 200, body
        events = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]
        decoded = [msgspec.json.decode(event) for event in events if event != b"[DONE]"]
        usage = usage_of(decoded[-1]["usage"])
        said = "".join(choice["delta"].get("content") or "" for one in decoded for choice in one["choices"])
        self.client.first_token(request_id, ttft_s, 0)
        self.client.release(LeaseEnd(request_id, Finish.COMPLETE, usage))
        records = self.router.dispatcher.records
        await until(lambda: records.of(request_id)[0].completion_tokens is not None)
        record: Record = records.of(request_id)[0]
        return Measured(kind, ttft_s, usage, said, record.predicted_cached_tokens)


def text(dice: random.Random, words: int) -> str:
    return " ".join(dice.choice(("river", "stone", "north", "seven", "bridge", "old", "paper")) for _ in range(words))


async def traffic(fleet: Fleet) -> list[Measured]:
    """Conversations turn by turn, interleaved at random: what no replica sees in a helpful order."""
    dice = random.Random(5)
    system = "You answer in one short sentence. " + text(dice, 150)
    histories: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for number in range(CONVERSATIONS):
        histories["plain", number] = []
        histories["tools", number] = []
        histories["system", number] = [{"role": "system", "content": system}]
        histories["multi-turn", number] = [{"role": "system", "content": text(dice, 60)}]
    turns = [key for key in histories for _ in range(TURNS)]
    dice.shuffle(turns)
    measured = []
    for kind, number in turns:
        history = histories[kind, number]
        question = {"role": "user", "content": f"{text(dice, 40)}, question {dice.randrange(10_000)}?"}
        if kind == "multi-turn":
            history.append(question)
            messages = tuple(history)
        else:
            messages = (*history, question)
        result = await fleet.chat(kind, messages, TOOLS if kind == "tools" else None)
        measured.append(result)
        if kind == "multi-turn":
            history.append({"role": "assistant", "content": result.text})
    return measured


@pytest.fixture(scope="module")
async def servers() -> AsyncIterator[tuple[SGLangServer, ...]]:
    folder = MODELS / "slipstream-chat"
    async with (
        sglang_server(folder, "tiny", "engine-token") as one,
        sglang_server(folder, "tiny", "engine-token") as two,
    ):
        yield one, two


async def run(servers: tuple[SGLangServer, ...], policy: str) -> list[Measured]:
    fleet = Fleet(servers, policy)
    await fleet.start()
    try:
        return await traffic(fleet)
    finally:
        await fleet.stop()


def hit_rate(measured: list[Measured]) -> float:
    return sum(one.usage.cached_tokens for one in measured) / sum(one.usage.prompt_tokens for one in measured)


async def test_prefixes_are_found_again_and_predicted(
    servers: tuple[SGLangServer, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    await run(servers, "least_load")  # warms the engines up
    blind = await run(servers, "round_robin")
    ours = await run(servers, "prefix")
    with capsys.disabled():
        for name, measured in (("round_robin", blind), ("prefix", ours)):
            times = sorted(one.ttft_s * 1e3 for one in measured)
            p90 = times[int(0.9 * len(times))]
            p50 = statistics.median(times)
            print(f"\n{name}: hit rate {hit_rate(measured):.3f}, TTFT p50 {p50:.1f} ms, p90 {p90:.1f} ms")
        by_kind: dict[str, list[Measured]] = defaultdict(list)
        for one in ours:
            by_kind[one.kind].append(one)
        for kind, some in sorted(by_kind.items()):
            errors = [abs(one.predicted - one.usage.cached_tokens) / one.usage.prompt_tokens for one in some]
            predicted, reported = sum(one.predicted for one in some), sum(one.usage.cached_tokens for one in some)
            print(
                f"{kind}: {len(some)} requests, cached predicted {predicted:,}, reported {reported:,}, "
                f"mean error {statistics.mean(errors):.3f} of the prompt"
            )
    assert hit_rate(ours) > hit_rate(blind)
    # this model's template leaves tools out of the prompt: their blocks count for nothing, and nobody can know
    told = [one for one in ours if one.kind != "tools"]
    errors = [abs(one.predicted - one.usage.cached_tokens) / one.usage.prompt_tokens for one in told]
    assert statistics.mean(errors) < 0.2
