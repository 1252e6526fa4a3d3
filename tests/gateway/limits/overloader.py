"""One gateway's limiter under more load than the limit allows, in a process of its own.

    python -m tests.gateway.limits.overloader URL SECONDS SEED

Begins when its input says so. Open load: requests come at their own times, whatever became of those before. Last line
of output: JSON with every admitted request of the loud key as [server's ms, reserved, used], and how the others fared.
"""

from __future__ import annotations

import asyncio
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
LOUD_PER_S = 60
MOST_TOKENS = 300
QUIET_PER_S = 2
ORGANIZATION = "overloaded"


def levels(key: str, limits: Limits) -> Levels:
    """A wide organization, and a key in it."""
    wide = Limits(tokens_per_minute=100 * TOKENS_PER_MINUTE, max_concurrency=1_000_000)
    rules = [Rule(Level.ORGANIZATION, ORGANIZATION, None, wide), Rule(Level.KEY, key, None, limits)]
    return Levels.of(ORGANIZATION, rules)


LOUD = levels("loud", Limits(tokens_per_minute=TOKENS_PER_MINUTE))
# three processes at two a second stay below ten
QUIET = levels("quiet", Limits(requests_per_minute=600, tokens_per_minute=100_000, max_concurrency=50))


async def main(url: str, seconds: float, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    limiter = MeasuredLimiter(url, instance=str(seed), call_timeout_s=10)
    await limiter.start()
    await limiter.wait_connected()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    admitted: list[tuple[int, int, int]] = []
    results: Counter[str] = Counter()

    async def one(name: str, key: str, which: Levels, most: int, used: int, hold_s: float) -> None:
        try:
            reservation = await limiter.reserve(
                name, Caller(ORGANIZATION, "p", key), Tier.CHAT, which, Cost(0, most, 0)
            )
        except LimitReached:
            results[f"{key} refused"] += 1
            return
        results[f"{key} admitted"] += 1
        assert reservation.state is not None
        if key == "loud":
            admitted.append((reservation.state.now_ms, most, used))
        await asyncio.sleep(hold_s)
        await limiter.settle(reservation, Cost(0, used, 0))

    loop = asyncio.get_running_loop()
    ends_s, tasks, number = loop.time() + seconds, set(), 0
    due_s = {"loud": loop.time(), "quiet": loop.time()}
    while (now_s := loop.time()) < ends_s:
        for key, which, per_s in (("loud", LOUD, LOUD_PER_S), ("quiet", QUIET, QUIET_PER_S)):
            while due_s[key] <= now_s:
                due_s[key] += chance.expovariate(per_s) if key == "loud" else 1 / per_s
                most = MOST_TOKENS if key == "loud" else 50
                used = chance.randint(most // 6, most)
                number += 1
                task = asyncio.create_task(one(f"{seed}.{number}", key, which, most, used, chance.uniform(0, 0.2)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    await limiter.drain()
    still_open = limiter.open_reservations
    await limiter.stop()
    return {"admitted": admitted, "results": dict(results), "open": still_open}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))), flush=True)
