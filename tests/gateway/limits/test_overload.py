"""Three gateway processes, one limit, more load than it allows: what is used in any window, and who is refused."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from tests.deployment import ROOT
from tests.gateway.limits import overloader
from tests.gateway.limits.store import Store

PER_MS = overloader.TOKENS_PER_MINUTE / 60_000


async def run_process(url: str, requests: int, seed: int, all_ready: asyncio.Barrier) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.gateway.limits.overloader", url, str(requests), str(seed),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT, limit=1 << 26,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    assert (await process.stdout.readline()).strip() == b"ready"
    await all_ready.wait()
    process.stdin.write(b"go\n")
    output, _ = await process.communicate()
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


@pytest.mark.parametrize("requests", [800, pytest.param(20_000, marks=pytest.mark.nightly)])
async def test_overload_by_three_processes(own_store: Store, requests: int) -> None:
    """They ask for three times the burst and more, so that it is overload on a slow machine too."""
    barrier = asyncio.Barrier(3)
    outcomes = await asyncio.gather(*(run_process(own_store.url, requests, seed, barrier) for seed in range(3)))
    admitted = sorted(tuple(each) for outcome in outcomes for each in outcome["admitted"])
    results = sum((Counter(outcome["results"]) for outcome in outcomes), Counter())

    # settled tokens of any window beyond what refills in it: never more than the burst, which is the limit itself
    highest = lowest = total = 0.0
    for at_ms, _, used in admitted:
        lowest = min(lowest, total - PER_MS * at_ms) if total else total - PER_MS * at_ms
        total += used
        highest = max(highest, total - PER_MS * at_ms - lowest)
    assert highest <= overloader.TOKENS_PER_MINUTE * 1.01

    # it was overload, from the first burst on, and what refilled was used
    assert results["loud refused"] > results["loud admitted"] / 10
    took_ms = admitted[-1][0] - admitted[0][0]
    assert total > 0.8 * (overloader.TOKENS_PER_MINUTE + PER_MS * took_ms) - 3 * overloader.MAX_TOKENS
    assert all(earlier <= later for earlier, later in pairwise(each[0] for each in admitted))

    # and nobody else noticed
    assert results["quiet refused"] == 0
    assert results["quiet admitted"] == 3 * overloader.QUIET_REQUESTS

    # idle again: nothing is reserved
    assert [outcome["open"] for outcome in outcomes] == [0, 0, 0]
    with own_store.client() as client:
        assert client.hlen(f"slipstream:{{{overloader.ORGANIZATION}}}:open") == 0
