"""The embedded engine's metrics beside the real SGLang's: same names, kinds, labels and bounds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from engines.drivers.base import EngineRequest
from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig, KVConfig
from engines.embedded.metrics import EngineCollector
from engines.embedded.service import Service
from engines.http.engine_connections import EngineConnections
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.tiny import drain, request
from tests.sglang.server import MODELS, SGLangServer

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(400)]
OURS = {"sglang:step_seconds"}
"""What SGLang does not count. There are `spec_drafts` and `spec_accepted_drafts` too."""
SPECULATIVE = "sglang:spec_"
"""Told by SGLang only when it guesses."""
RARE = {"sglang:num_aborted_requests", "sglang:num_retracted_requests", "sglang:evicted_tokens"}
"""Told by SGLang only when it has happened."""
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


def served() -> Any:
    """A service whose engine has answered."""
    config = EngineConfig(model=str(MODELS / "slipstream-chat"), kv=KVConfig(budget_bytes=1 << 22))
    service = Service(config)
    service.engine = build_engine(config, 512, Tokenizer.load(Path(config.model)))
    service.engine.submit(request("r", list(range(5, 90))))
    drain(service.engine)
    return service
