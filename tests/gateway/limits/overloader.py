"""One gateway's limiter under more load than the limit allows, in a process of its own.

    python -m tests.gateway.limits.overloader URL REQUESTS SEED

Begins when its input says so, and sends its requests as fast as they are decided, a few at a time. Last line of output:
JSON with every admitted request of the loud key as [server's ms, reserved, used], and how the others fared.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from collections import Counter
from typing import Any

from contracts.generation import Caller, Tier
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.refusal import LimitReached
from tests.gateway.limits.store import MeasuredLimiter

TOKENS_PER_MINUTE = 120_000
"""2,000 a second, for all processes together."""
LOUD_AT_ONCE = 8
MAX_TOKENS = 300
QUIET_REQUESTS = 20
ORGANIZATION = "overloaded"


def levels(key: str, limits: Limits) -> Levels:
    """A wide organization, and a key in it."""
    wide = Limits(tokens_per_minute=100 * TOKENS_PER_MINUTE, max_concurrency=1_000_000)
    rules = [Rule(Level.ORGANIZATION, ORGANIZATION, None, wide), Rule(Level.KEY, key, None, limits)]
    return Levels.of(ORGANIZATION, rules)


LOUD = levels("loud", Limits(tokens_per_minute=TOKENS_PER_MINUTE))
# three processes' requests fit, and none comes in the way of another
QUIET = levels("quiet", Limits(requests_per_minute=600, tokens_per_minute=100_000, max_concurrency=50))


async def main(url: str, requests: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    limiter = MeasuredLimiter(url, instance=str(seed))
    await limiter.start()
    await limiter.wait_connected()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    admitted: list[tuple[int, int, int]] = []
    results: Counter[str] = Counter()
    numbers = itertools.count()

    async def one(key: str, which: Levels, most: int) -> None:
        used = chance.randint(most // 6, most)
        try:
            reservation = await limiter.reserve(
                f"{seed}.{next(numbers)}", Caller(ORGANIZATION, "p", key), Tier.CHAT, which, Cost(0, most, 0)
            )
        except LimitReached:
            results[f"{key} refused"] += 1
            return
        results[f"{key} admitted"] += 1
        assert reservation.state is not None
        if key == "loud":
            admitted.append((reservation.state.now_ms, most, used))
        await asyncio.sleep(0)
        await limiter.settle(reservation, Cost(0, used, 0))

    async def several(key: str, which: Levels, most: int, count: int) -> None:
        for _ in range(count):
            await one(key, which, most)

    async with asyncio.TaskGroup() as group:
        for _ in range(LOUD_AT_ONCE):
            group.create_task(several("loud", LOUD, MAX_TOKENS, requests // LOUD_AT_ONCE))
        group.create_task(several("quiet", QUIET, 50, QUIET_REQUESTS))
    await limiter.drain()
    still_open = limiter.open_reservations
    await limiter.stop()
    return {"admitted": admitted, "results": dict(results), "open": still_open}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))), flush=True)
