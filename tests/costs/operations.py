"""The operations whose costs are recorded. Each runs until it is warm and is then counted."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from contracts.lease import LeaseEnd
from contracts.prefix import HASH_BYTES
from contracts.usage import Finish, Usage
from router.core.decisions import Decision
from router.core.events import Acquire, Event, FirstToken, Release
from tests.costs.gateway import CHAT_PATH, COMPLETION_PATH, MemoryGateway, memory_gateway
from tests.costs.kept import Cost
from tests.costs.memory_loop import MemoryLoop
from tests.costs.meter import Count, Meter, no_collections
from tests.engines.embedded.tiny import CONFIG, make_engine, random_weights, request, write_model
from tests.router.core_driver import Core, granted
from tests.router.fakes import ask, fleet

WARM = 8
"""Number of runs before the counted ones."""
TIMES = 15
"""Number of runs whose median is taken for bytes, because containers grow occasionally."""
SHORT, LONG = 64, 192
"""The lengths, in tokens, of the two streams whose difference is a token's cost."""
CONVERSATION = b"".join(bytes([number]) * HASH_BYTES for number in range(16))
"""The prefix chain of the lease's prompt."""
STEPS = 32
"""Number of engine steps that are averaged: a sequence takes a new page every fourth step."""
MESSAGES = [
    {"role": "system", "content": "You answer in verse. " * 12},
    {"role": "user", "content": "Write a short poem about the sea and the wind, please."},
]


def measured() -> dict[str, Cost]:
    """Costs by the names of `page.OPERATIONS`. Call it in a separate process."""
    meter = Meter()
    loop = MemoryLoop(meter)
    asyncio.set_event_loop(loop)
    with no_collections():
        costs = loop.run_until_complete(_of_gateway(loop, meter))
        costs["lease"] = _of_lease(meter)
        for batch in (1, 8):
            costs[f"engine step, batch {batch}"] = _of_step(meter, batch)
    loop.close()
    return costs


async def _of_gateway(loop: MemoryLoop, meter: Meter) -> dict[str, Cost]:
    async with memory_gateway(loop) as gateway:
        chat = gateway.request(CHAT_PATH, model="chat", messages=MESSAGES, stream=True, max_tokens=400, temperature=0.7)
        whole = gateway.request(CHAT_PATH, model="chat", messages=MESSAGES, max_tokens=400, temperature=0.7)
        completion = gateway.request(
            COMPLETION_PATH,
            model="code",
            prompt="def add(a, b):\n    ret",
            suffix="\n\nprint(add(1, 2))\n",
            stream=True,
            max_tokens=64,
        )

        async def cost(asked: bytes, status: int = 200, **engine: Any) -> Cost:
            gateway.engine.tokens, gateway.engine.spaced = engine.get("tokens", 16), engine.get("spaced", False)
            gateway.engine.together = asked is whole
            gateway.valkey.refuses = status == 429

            async def once() -> Count:
                meter.start()
                gateway.client.ask(asked)
                await loop.idle()
                count = meter.stop()
                _require_answer(gateway, status)
                return count

            return await _repeated(meter, once)

        async def token(**engine: Any) -> Cost:
            long, short = await cost(chat, tokens=LONG, **engine), await cost(chat, tokens=SHORT, **engine)
            return long.minus(short).divided(LONG - SHORT)

        return {
            "chat request": await cost(chat),
            "whole answer": await cost(whole),
            "streamed token": await token(),
            "decoded token": await token(spaced=True),
            "completion": await cost(completion),
            "refused request": await cost(chat, 429),
        }


def _require_answer(gateway: MemoryGateway, status: int) -> None:
    answer = gateway.client.answer
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    if status == 200 and gateway.engine.together:
        assert b'"completion_tokens":%d' % gateway.engine.tokens in answer, answer
    elif status == 200:
        assert answer.count(b"data: ") >= gateway.engine.tokens, answer
        assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), answer


async def _repeated(meter: Meter, once: Callable[[], Awaitable[Count]]) -> Cost:
    """Count a warm operation. Raises RuntimeError when two runs call different functions."""
    for _ in range(WARM):
        await once()
    first, second = await once(), await once()
    _require_same(first, second)
    with meter.for_bytes():
        for _ in range(2):
            await once()
        allocated = [(await once()).bytes for _ in range(TIMES)]
    return Cost(dict(first.functions), statistics.median(allocated), first.torch, dict(first.io))


def _require_same(first: Count | Cost, second: Count | Cost) -> None:
    if first.functions != second.functions:
        changed = {name for name, _ in set(first.functions.items()) ^ set(second.functions.items())}
        raise RuntimeError(f"two runs called different functions: {sorted(changed)}")
    if first.io != second.io:
        raise RuntimeError(f"two runs read and wrote differently: {first.io}, {second.io}")


class UncheckedCore(Core):
    """A core without the integrity check, which itself calls the core."""

    def do(self, event: Event) -> list[Decision]:
        return self.core.handle(event, self.now)


def leasing_core() -> UncheckedCore:
    """Eight replicas whose speed is known."""
    driver = UncheckedCore(fleet(replicas=tuple(f"r{number}" for number in range(8)), max_concurrency=16))
    driver.learn(0.001, tuple(driver.core.fleet.replicas), rounds=8)
    return driver


def lease_events(number: int) -> tuple[Acquire, FirstToken, Release]:
    """The events of one lease of a conversation."""
    lease_id = f"lease-{number:08}"
    asked = msgspec.structs.replace(
        ask(lease_id),
        prompt_tokens=1_024,
        max_output_tokens=256,
        organization_id="organization",
        project_id="project",
        prefix_kind="tokens",
        prefix_hashes=CONVERSATION,
    )
    release = Release(1, LeaseEnd(lease_id, Finish.COMPLETE, Usage(1_024, 16, 960)))
    return Acquire(1, asked), FirstToken(1, lease_id, 0.05, 960), release


def _of_lease(meter: Meter) -> Cost:
    driver = leasing_core()
    numbers = iter(range(1_000_000))

    async def once() -> Count:
        acquire, began, release = lease_events(next(numbers))
        meter.start()
        decisions = driver.do(acquire)
        driver.now += 0.05
        driver.do(began)
        driver.now += 0.2
        driver.do(release)
        count = meter.stop()
        driver.now += 1.0
        assert granted(decisions) == [began.lease_id]
        return count

    return asyncio.run(_repeated(meter, once))


def _of_step(meter: Meter, batch: int) -> Cost:
    """Count the same steps of two new engines, because steps with other tokens call other functions."""
    first, second = _steps(meter, batch), _steps(meter, batch)
    _require_same(first, second)
    return first


def _steps(meter: Meter, batch: int) -> Cost:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        engine = make_engine(write_model(Path(folder) / "tiny", CONFIG, random_weights(CONFIG)), pages=1_024)
        for number in range(batch):
            prompt = range(10 + number, 26 + number)
            engine.submit(request(f"r{number}", prompt, max_tokens=400, temperature=0.0))

        async def steps() -> Count:
            totals = Count(Counter())
            for _ in range(STEPS):
                meter.start()
                engine.step()
                count = meter.stop()
                assert len(engine.scheduler.running) == batch
                totals = Count(
                    totals.functions + count.functions, totals.bytes + count.bytes, totals.torch + count.torch
                )
            return totals

        while any(sequence.is_new for sequence in engine.scheduler.running) or engine.scheduler.waiting:
            engine.step()
        engine.step()
        asyncio.run(steps())
        counted = asyncio.run(steps())
        with meter.for_bytes():
            asyncio.run(steps())
            allocated = [asyncio.run(steps()).bytes for _ in range(3)]
    return Cost(dict(counted.functions), statistics.median(allocated), counted.torch).divided(STEPS)
