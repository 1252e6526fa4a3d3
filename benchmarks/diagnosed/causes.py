"""The injected faults and their right diagnosis: the cause, and the changes that the documents call wrong for it.

The changes are listed here independently of the rules, so that a rule that names a wrong one does not grade itself.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from benchmarks.diagnosed.load import Shape
from benchmarks.diagnosed.paced_engine import Pace

if TYPE_CHECKING:
    from benchmarks.diagnosed.site import Site

Inject = Callable[["Site", random.Random], Awaitable[Shape]]
COMPUTE = frozenset({"weight_quantization", "speculative_decoding", "kv_quantization", "faster_attention"})
ENGINES = COMPUTE | {"more_replicas", "smaller_batch", "bigger_batch", "chunked_prefill", "prefix_caching", "cascade"}
"""Changes of engines: wrong wherever no engine is the cause."""


class Injection(msgspec.Struct, frozen=True):
    """inject: injects the fault and returns the shape of the requests. `Site.heal` removes the fault."""

    inject: Inject
    expected: str | None
    """The cause to be named first; None if nothing may be found."""
    wrong: frozenset[str]
    """Changes that must not be proposed."""


async def _healthy(site: Site, source: random.Random) -> Shape:
    return Shape()


async def _queue(site: Site, source: random.Random) -> Shape:
    """Half of the time, four times the requests in bursts and bounded batches; else hardly any slots."""
    bursts = source.random() < 0.5
    await site.pace(Pace(max_running=3 if bursts else 1))
    return Shape(rate=32.0, burst=4) if bursts else Shape()


async def _long_prompts(site: Site, source: random.Random) -> Shape:
    return Shape(rate=6.0, question_tokens=(4_500, 7_500))


async def _slow_decode(site: Site, source: random.Random) -> Shape:
    await site.pace(Pace(token_s=source.uniform(0.035, 0.055)))
    return Shape()


async def _slow_prefill(site: Site, source: random.Random) -> Shape:
    await site.pace(Pace(prefill_s=source.uniform(0.0006, 0.0009)))
    return Shape(rate=6.0)


async def _retractions(site: Site, source: random.Random) -> Shape:
    """Answers that outgrow the memory that was enough for their prompts."""
    await site.pace(Pace(capacity_tokens=source.randint(1_150, 1_400)))
    return Shape(rate=5.1, output_tokens=(90, 150))


async def _slow_router(site: Site, source: random.Random) -> Shape:
    site.router.delay_s = source.uniform(0.06, 0.12)
    return Shape()


async def _slow_valkey(site: Site, source: random.Random) -> Shape:
    site.valkey.delay_s = source.uniform(0.06, 0.12)
    return Shape()


async def _part_away(site: Site, source: random.Random) -> Shape:
    """For a part of the window, the router or Valkey is unreachable."""
    site.outage(source.choice((site.router, site.valkey)), seconds=source.uniform(3.0, 6.0))
    return Shape()


async def _slow_client(site: Site, source: random.Random) -> Shape:
    return Shape(sipping=frozenset({source.choice(("acme", "bolt", "corp"))}))


async def _buffering_proxy(site: Site, source: random.Random) -> Shape:
    site.through_proxy = True
    return Shape()


async def _broken_prefix(site: Site, source: random.Random) -> Shape:
    return Shape(dated=frozenset({source.choice(("acme", "bolt", "corp"))}))


async def _slow_replica(site: Site, source: random.Random) -> Shape:
    slow = Pace(token_s=source.uniform(0.035, 0.05), prefill_s=0.00012)
    await site.pace(slow, replica=source.randrange(site.replicas))
    return Shape()


async def _limits(site: Site, source: random.Random) -> Shape:
    site.limited = source.choice(("acme", "bolt", "corp"))
    return Shape()


async def _cold_start(site: Site, source: random.Random) -> Shape:
    await site.flush_caches()
    return Shape()


# By the names of the issue.
INJECTIONS: dict[str, Injection] = {
    "healthy": Injection(_healthy, None, frozenset()),
    "slow queue": Injection(
        _queue, "queue", frozenset({"weight_quantization", "faster_attention", "bigger_batch", "speculative_decoding"})
    ),
    "long prompts": Injection(
        _long_prompts,
        "long_prompts",
        frozenset({"weight_quantization", "speculative_decoding", "kv_quantization", "bigger_batch", "drain_replica"}),
    ),
    "slow prefill": Injection(
        _slow_prefill, "slow_prefill", frozenset({"weight_quantization", "speculative_decoding", "kv_quantization"})
    ),
    "slow decode": Injection(
        _slow_decode,
        "slow_decode",
        frozenset({"prefix_caching", "faster_attention", "bigger_batch", "more_replicas", "chunked_prefill"}),
    ),
    "retractions": Injection(
        _retractions,
        "retractions",
        frozenset({"bigger_batch", "speculative_decoding", "chunked_prefill", "faster_attention"}),
    ),
    "slow router": Injection(_slow_router, "slow_router", ENGINES | {"admission_control", "raise_limit"}),
    "slow Valkey": Injection(_slow_valkey, "slow_limiter", ENGINES | {"admission_control", "raise_limit"}),
    "part away": Injection(_part_away, "platform_failures", ENGINES | {"admission_control", "raise_limit"}),
    "slow client": Injection(_slow_client, "slow_client", ENGINES | {"admission_control", "raise_limit"}),
    "buffering proxy": Injection(_buffering_proxy, "network", ENGINES | {"admission_control", "raise_limit"}),
    "broken prefix": Injection(
        _broken_prefix, "broken_prefix", COMPUTE | {"more_kv_memory", "cache_aware_routing", "warm_up"}
    ),
    "one slow replica": Injection(
        _slow_replica, "slow_replica", COMPUTE | {"smaller_batch", "more_replicas", "bigger_batch"}
    ),
    "limits": Injection(_limits, "limits", ENGINES | {"admission_control"}),
    "cold start": Injection(
        _cold_start, "cold_cache", COMPUTE | {"stable_prefix", "more_replicas", "more_kv_memory", "drain_replica"}
    ),
}
