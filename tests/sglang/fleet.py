"""Real replicas behind our router, SGLang by default, asked as a gateway asks: prepared, placed, streamed, reported."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Caller, Tier
from contracts.lease import LeaseEnd, LeaseRequest
from contracts.usage import Finish, Usage
from engines.drivers import registry as drivers
from engines.drivers.error_bodies import usage_of
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.openai.decode import Decoder
from gateway.wire.openai.prepare import prepare_chat
from gateway.wire.prepared import Prepared, Target
from router.client import RouterClient
from router.client_config import RouterClientConfig
from router.config import RouterConfig
from router.core.record import Record
from router.server import RouterServer
from router.tokens import RouterTokens
from tests.real_engine import GUARD_S
from tests.sglang.server import SGLangServer
from tests.vllm.server import VLLMServer
from tests.waiting import eventually

MODEL = Model("public", Tier.CHAT, "pool", 4_096, engine_model="tiny")
KINDS = ("plain", "tools", "system", "multi-turn")
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
TOOLS_TEMPLATE = (
    "{{ '<|endoftext|>' }}{% if tools %}{{ '<|system|>' }}{% for tool in tools %}"
    "{{ tool['function'] | tojson }}{% endfor %}{% endif %}{% for m in messages %}"
    "{{ '<|' + m['role'] + '|>' + m['content'] }}{% if m['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""The shipped model's template has no place for tools; this one writes them before the messages, as most do."""
WORDS = ("river", "stone", "north", "seven", "bridge", "old", "paper")
_numbers = itertools.count(1)


class Measured(msgspec.Struct):
    """One answered request."""

    kind: str
    ttft_s: float
    counted_tokens: int
    """The prompt, as the gateway counted it."""
    usage: Usage
    """As the engine counted it."""
    predicted: int
    """Cached tokens, by the router."""
    text: str


def with_tools_template(model: Path, folder: Path, template: str = TOOLS_TEMPLATE) -> Path:
    """A copy of a model in `folder` whose chat template writes tools into the prompt. template: another one."""
    for file in model.iterdir():
        if file.is_file() and file.name != "tokenizer_config.json":
            (folder / file.name).symlink_to(file.resolve())
    settings = json.loads((model / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
    return folder


class SGLangFleet:
    """Router, gateway client and engines for one policy. Cold: what other fleets cached is not found again."""

    def __init__(
        self,
        servers: Sequence[SGLangServer | VLLMServer],
        policy: str,
        kv_events: str = "",
        kv_events_replay: str = "",
        driver: str = "sglang",
    ) -> None:
        """kv_events: where the one server publishes them. kv_events_replay: where it repeats them."""
        self.driver = drivers.get(driver)
        self.servers = {f"sglang-{number}": server for number, server in enumerate(servers)}
        self.token = servers[0].token
        self.connections = EngineConnections(OneKey(self.token))
        # two servers on two busy cores may take seconds to answer a poll, and are healthy
        config = RouterConfig(port=0, control_port=0, policy=policy, probe_timeout_s=30.0)
        self.router = RouterServer(config, RouterTokens(self.token, "reader"), self.connections, drivers.get)
        tokenizer = OffLoopTokenizer(Tokenizer.load(servers[0].folder))
        self.target = Target(MODEL, self.driver.capabilities, tokenizer)
        self.salt = f"{policy}-{next(_numbers)}-{os.urandom(4).hex()}"
        self.kv_events = kv_events
        self.kv_events_replay = kv_events_replay
        self._decoder = Decoder()

    async def __aenter__(self) -> SGLangFleet:
        await self.router.start()
        address = f"127.0.0.1:{self.router.port}"
        self.client = RouterClient(RouterClientConfig(address=address), self.token, "gateway")
        await self.client.start()
        assert await self.client.wait_connected(GUARD_S)
        replicas = tuple(
            Replica(name, server.url, kv_events=self.kv_events, kv_events_replay=self.kv_events_replay)
            for name, server in self.servers.items()
        )
        self.client.publish(DesiredState(1, (MODEL,), (Pool("pool", self.driver.name, replicas),)))
        fleet = self.router.dispatcher.fleet
        await eventually(
            lambda: len(fleet.replicas) == len(replicas) and all(one.usable for one in fleet.replicas.values()), GUARD_S
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.stop()
        await self.router.stop()
        await self.connections.close()

    async def prepared(self, messages: Sequence[dict[str, Any]], **fields: Any) -> Prepared:
        """As the gateway prepares it. fields: further ones of the OpenAI request."""
        body = {"model": "public", "messages": messages, "max_tokens": 16, "temperature": 0.0, "stream": True, **fields}
        asked = self._decoder.chat(msgspec.json.encode(body))
        request_id = f"req_{next(_numbers):032x}"
        return await prepare_chat(asked, request_id, Caller("o", "p", "k"), self.salt, self.target)

    async def chat(self, kind: str, messages: Sequence[dict[str, Any]], **fields: Any) -> Measured:
        """One conversation's next answer. fields: further ones of the OpenAI request."""
        prepared = await self.prepared(messages, **fields)
        request_id, chain = prepared.generation.request_id, prepared.chain
        lease = await self.client.acquire(
            LeaseRequest(
                request_id, request_id, 0, Tier.CHAT, "public", prepared.prompt_tokens, 16, 60.0, "o", chain.kind,
                chain.hashes,
            )
        )  # fmt: skip
        started = time.perf_counter()
        stream = await self.connections.open(lease.engine.url, self.driver.generate(prepared.generation, "tiny"))
        answer, ttft_s = b"", 0.0
        while piece := await stream.read():
            ttft_s = ttft_s or time.perf_counter() - started
            answer += piece
        assert stream.status == 200, answer
        events = [event.removeprefix(b"data: ") for event in answer.split(b"\n\n") if event]
        decoded = [msgspec.json.decode(event) for event in events if event != b"[DONE]"]
        usage = usage_of(decoded[-1]["usage"])
        said = "".join(choice["delta"].get("content") or "" for one in decoded for choice in one["choices"])
        self.client.first_token(request_id, ttft_s, 0)
        self.client.release(LeaseEnd(request_id, Finish.COMPLETE, usage))
        records = self.router.dispatcher.records
        await eventually(lambda: records.of(request_id)[0].completion_tokens is not None, GUARD_S)
        record: Record = records.of(request_id)[0]
        return Measured(kind, ttft_s, prepared.prompt_tokens, usage, record.predicted_cached_tokens, said)


async def traffic(
    fleets: Sequence[SGLangFleet], conversations: int, seed: int, at_once: int = 2, kinds: Sequence[str] = KINDS
) -> list[list[Measured]]:
    """Conversations of these kinds turn by turn, so many at a time, in an order that helps nobody; what each fleet
    measured. Every turn goes to all fleets one after the other, so that they meet the same minute of a busy machine."""
    dice = random.Random(seed)
    system = "You answer in one short sentence. " + _text(dice, 150)
    begins: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for number in range(conversations):
        begins["plain", number] = []
        begins["tools", number] = []
        begins["system", number] = [{"role": "system", "content": system}]
        begins["multi-turn", number] = [{"role": "system", "content": _text(dice, 400)}]
    turns = [(key, _text(dice, 50)) for key in begins if key[0] in kinds for _ in range(TURNS)]
    dice.shuffle(turns)
    histories = [{key: list(history) for key, history in begins.items()} for _ in fleets]
    measured: list[list[Measured]] = [[] for _ in fleets]
    busy: set[tuple[str, int]] = set()

    async def worker() -> None:
        while (turn := next((one for one in turns if one[0] not in busy), None)) is not None:
            turns.remove(turn)
            key, text = turn
            busy.add(key)
            for place in dice.sample(range(len(fleets)), len(fleets)):
                history = histories[place][key]
                question = {"role": "user", "content": text + "?"}
                fields = {"tools": TOOLS} if key[0] == "tools" else {}
                result = await fleets[place].chat(key[0], (*history, question), **fields)
                measured[place].append(result)
                if key[0] == "multi-turn":
                    history += [question, {"role": "assistant", "content": result.text}]
            busy.remove(key)

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return measured


def hit_rate(measured: Sequence[Measured]) -> float:
    """Cached part of all prompt tokens."""
    return sum(one.usage.cached_tokens for one in measured) / sum(one.usage.prompt_tokens for one in measured)


def prediction_error(measured: Sequence[Measured]) -> float:
    """Mean distance of predicted and reported cached tokens, as a part of the prompt."""
    return sum(abs(one.predicted - one.usage.cached_tokens) / one.usage.prompt_tokens for one in measured) / len(
        measured
    )


def _text(dice: random.Random, words: int) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(words)) + f", number {dice.randrange(10_000)}"
