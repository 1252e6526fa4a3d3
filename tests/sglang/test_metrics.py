"""The embedded engine's metrics beside the real SGLang's: same names, kinds, labels and bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from engines.drivers.base import EngineRequest
from engines.drivers.counters import EngineStages
from engines.drivers.sglang import SGLangDriver
from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig, KVConfig
from engines.embedded.metrics import EngineCollector
from engines.embedded.service import Service
from engines.http.engine_connections import EngineConnections
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.tiny import drain, request
from tests.real_engine import GUARD_S
from tests.sglang.client import Client
from tests.sglang.server import MODELS, SGLangServer

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(400)]
OURS = {"sglang:step_seconds"}
"""What SGLang does not count. There are `spec_drafts` and `spec_accepted_drafts` too."""
SPECULATIVE = "sglang:spec_"
"""Told by SGLang only when it guesses."""
RARE = {"sglang:num_aborted_requests", "sglang:num_retracted_requests", "sglang:evicted_tokens"}
"""Told by SGLang only when it has happened."""
DRIVER = SGLangDriver()
STAGE = "sglang:per_stage_req_latency_seconds"


class Family(NamedTuple):
    kind: str
    labels: frozenset[str]
    bounds: frozenset[str]


def families(metrics: Iterable[Metric]) -> dict[str, Family]:
    """What has samples, by name. SGLang's processes share files, which leaves its counters without the suffix."""
    found: dict[str, Family] = {}
    for metric in metrics:
        labels = frozenset().union(*(sample.labels for sample in metric.samples))
        bounds = frozenset(sample.labels["le"] for sample in metric.samples if "le" in sample.labels)
        found[metric.name] = Family(metric.type, labels, bounds)
    return found


async def test_our_metrics_are_sglangs(sglang: SGLangServer, connections: EngineConnections) -> None:
    body = msgspec.json.encode({"model": sglang.model, "prompt": list(range(5, 90)), "max_tokens": 8, "stream": True})
    for _ in range(2):
        await connections.fetch(sglang.url, EngineRequest("POST", "/v1/completions", body), 120)
    text = (await connections.fetch(sglang.url, EngineRequest("GET", "/metrics"), 30))[1].decode()
    theirs = families(text_string_to_metric_families(text))
    mine = families(EngineCollector(served()).collect())
    missing = {name for name in set(mine) - set(theirs) if not name.startswith(SPECULATIVE)}
    assert missing - RARE == OURS
    both = [(name, family, theirs[name]) for name, family in mine.items() if name in theirs]
    assert [name for name, family, other in both if family.kind != other.kind] == []
    # theirs has ranks too
    assert [name for name, family, other in both if not family.labels <= other.labels] == []
    assert {float(bound) for bound in mine[STAGE].bounds} == {float(bound) for bound in theirs[STAGE].bounds}


async def test_queue_and_prefill_are_told_apart(engine: Client) -> None:
    """By the driver that reconciliation asks; looks at its health are no requests, and cost next to nothing."""
    asked, tokens, sglang, connections = 6, 120, engine.server, engine.connections
    before = await stages(sglang, connections)
    began = time.monotonic()
    bodies = [
        {"model": sglang.model, "prompt": list(range(first, first + tokens)), "max_tokens": 4}
        for first in range(5, 5 + asked)
    ]
    posts = (EngineRequest("POST", "/v1/completions", msgspec.json.encode(body)) for body in bodies)
    await asyncio.gather(*(connections.fetch(sglang.url, post, GUARD_S) for post in posts))
    for _ in range(3):
        await connections.fetch(sglang.url, DRIVER.health(), GUARD_S)
    async with asyncio.timeout(GUARD_S):
        while (after := await stages(sglang, connections)).requests < before.requests + asked:
            pass
    took_s = time.monotonic() - began
    assert after.requests == before.requests + asked
    assert 0 < after.prefill_s - before.prefill_s < took_s * (asked + 3)
    assert 0 < after.queue_s - before.queue_s < took_s * (asked + 3)
    assert after.retractions == before.retractions


async def stages(sglang: SGLangServer, connections: EngineConnections) -> EngineStages:
    """As its page tells them now."""
    _, page = await connections.fetch(sglang.url, DRIVER.counts(), GUARD_S)
    told = DRIVER.parse_counts(page).stages
    assert told is not None
    return told


def served() -> Any:
    """A service whose engine has answered."""
    config = EngineConfig(model=str(MODELS / "slipstream-chat"), kv=KVConfig(budget_bytes=1 << 22))
    service = Service(config)
    service.engine = build_engine(config, 512, Tokenizer.load(Path(config.model)))
    service.engine.submit(request("r", list(range(5, 90))))
    drain(service.engine)
    return service
