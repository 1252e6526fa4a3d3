"""The load of a replay's engines: how long their steps took, how busy they were, and what their caches evicted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

STEPS = "sglang:step_seconds"


class EngineLoad(msgspec.Struct, frozen=True):
    """The load of all engines together."""

    step_p99_ms: float | None
    """The upper bound of the histogram bucket of the step at p99; None if there was no step, or if it is above the
    last bound."""
    busy_share: float
    """The share of the time that the engines spent in steps."""
    kv_tokens: int
    """The capacity of their KV caches."""
    evicted_tokens: int
    """Tokens of cached prefixes that were evicted because their pages were needed."""


async def read(urls: Sequence[str], token: str) -> list[dict[str, float]]:
    """Each engine's current numbers by name, as `numbers` returns them."""
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}) as client:
        found = []
        for url in urls:
            async with client.get(f"{url}/metrics") as answer:
                answer.raise_for_status()
                found.append(numbers(await answer.text()))
        return found


def numbers(exposition: str) -> dict[str, float]:
    """The samples of a scrape by name; buckets of a histogram by name and upper bound."""
    found: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            found[sample.name + sample.labels.get("le", "")] += sample.value
    return dict(found)


def load(before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]], wall_s: float) -> EngineLoad:
    """The load between two readings of the same engines, `wall_s` seconds apart."""

    def grown(name: str) -> float:
        return sum(new.get(name, 0) - old.get(name, 0) for old, new in zip(before, after, strict=True))

    bounds = {
        float(name.removeprefix(f"{STEPS}_bucket")): name
        for name in after[0]
        if name.startswith(f"{STEPS}_bucket") and not name.endswith("+Inf")
    }
    steps = grown(f"{STEPS}_count")
    at_p99 = next((bound for bound in sorted(bounds) if grown(bounds[bound]) >= 0.99 * steps), None)
    return EngineLoad(
        step_p99_ms=round(at_p99 * 1e3, 1) if at_p99 is not None and steps else None,
        busy_share=round(grown(f"{STEPS}_sum") / (wall_s * len(after)), 3),
        kv_tokens=round(sum(one.get("sglang:max_total_num_tokens", 0) for one in after)),
        evicted_tokens=round(grown("sglang:evicted_tokens_total")),
    )
