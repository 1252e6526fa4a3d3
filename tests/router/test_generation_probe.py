"""What an engine's answer to the router's own generation says about it, and what becomes of one that fails it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from prometheus_client import generate_latest

from contracts.errors import ConfigError, ConnectionsExhausted, EngineFailed, EngineTimeout, NoEngine
from contracts.generation import Tier
from contracts.lease import LeaseEnd
from contracts.usage import Finish
from engines.drivers import registry as drivers
from engines.drivers.base import Driver, EngineRequest
from router.config import RouterConfig
from router.core.avoidance import FAULTS_TO_AVOID
from router.core.decisions import ProbeGeneration
from router.core.events import GenerationProbed, Probe
from router.generation_probe import GenerationProber, outcome
from router.health import Target
from router.server import RouterServer
from tests.router.fakes import GUARD_S, TOKENS, Connect, ask, fleet
from tests.waiting import eventually

CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "1"}}]}\n\n'
LAST = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("status", "body", "probe"),
    [
        (200, CHUNK + LAST + DONE, Probe.WELL),
        (200, CHUNK + LAST, Probe.WELL),  # the gateway asks for no [DONE] either
        (200, (CHUNK + LAST + DONE).replace(b"data: ", b"data:"), Probe.WELL),
        (200, (CHUNK + LAST + DONE).replace(b"\n", b"\r\n"), Probe.WELL),
        (200, b": a comment\nevent: x\n" + LAST, Probe.WELL),
        (200, CHUNK + DONE, Probe.FAILED),
        (200, b"data: [1]\n\n" + DONE, Probe.FAILED),
        (200, b'data: {"choices": "\xff"}\n\n' + LAST + DONE, Probe.FAILED),
        (200, b"data: " + b"[" * 50_000 + b"\n\n" + LAST + DONE, Probe.FAILED),
        (200, b'data: {"choices": [1]}\n\n' + DONE, Probe.FAILED),
        (200, CHUNK, Probe.FAILED),
        (200, b"", Probe.FAILED),
        (200, CHUNK + b'data: {"error": {"message": "CUDA error", "code": 500}}\n\n' + DONE, Probe.FAILED),
        (200, b'data: {"object": "error", "message": "x", "code": null}\n\n' + DONE, Probe.FAILED),
        (200, b'data: {"error": {"message": "x", "code": "400"}}\n\n' + DONE, Probe.UNCLEAR),
        (500, b"", Probe.FAILED),
        (502, b"", Probe.FAILED),
        (503, b"", Probe.UNCLEAR),
        (429, b"", Probe.UNCLEAR),
        (400, b'{"error": {"message": "no chat template"}}', Probe.UNCLEAR),
        (404, b"", Probe.UNCLEAR),
    ],
)
def test_only_what_an_engine_does_wrong_counts_against_it(status: int, body: bytes, probe: Probe) -> None:
    assert outcome(status, body)[0] is probe


class Engines:
    """Healthy by their polls; what they answer to a generation is told by URL."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes] | Exception] = {}
        self.asked: list[tuple[str, EngineRequest]] = []

    async def fetch(
        self, url: str, request: EngineRequest, timeout_s: float, *, pool_name: str = ""
    ) -> tuple[int, bytes]:
        if request.method == "GET":
            return (200, b'{"loads": []}')
        self.asked.append((url, request))
        answer = self.answers.get(url, (200, CHUNK + LAST + DONE))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("driver", ["openai", "sglang", "embedded"])
@pytest.mark.parametrize("tier", list(Tier))
async def test_one_token_is_asked_in_every_dialect(driver: str, tier: Tier) -> None:
    engines, heard = Engines(), asyncio.Queue[GenerationProbed]()
    prober = GenerationProber(engines, drivers.get, heard.put_nowait)
    asked = ProbeGeneration("r1", "inside", tier)
    prober.probe(asked, Target("http://r1", driver))
    assert (await asyncio.wait_for(heard.get(), GUARD_S)).probe is Probe.WELL
    ((_, request),) = engines.asked
    body = msgspec.json.decode(request.body)
    assert (body["model"], body["max_tokens"]) == ("inside", 1)
    assert request.path == ("/v1/chat/completions" if tier is Tier.CHAT else "/v1/completions")
    for error, probe in (
        (EngineTimeout("silent"), Probe.LATE),
        (EngineFailed("refused"), Probe.FAILED),
        (ConnectionsExhausted("no descriptor left"), Probe.UNCLEAR),
        (NoEngine("its key is missing here"), Probe.UNCLEAR),
        (ConfigError("no such driver"), Probe.UNCLEAR),
        (RuntimeError("a defect in Slipstream"), Probe.UNCLEAR),
    ):
        engines.answers["http://r1"] = error
        prober.probe(asked, Target("http://r1", driver))
        assert (await asyncio.wait_for(heard.get(), GUARD_S)).probe is probe
    await prober.stop()


async def test_an_engine_that_fails_its_only_tenant_behind_healthy_polls_is_taken_out(connect: Connect) -> None:
    engines = Engines()
    engines.answers["http://127.0.0.1/r1"] = (500, b"")

    def driver_of(name: str) -> Driver:
        return drivers.get("sglang")

    config = RouterConfig(port=0, control_port=0, poll_interval_s=0.02)
    router = RouterServer(config, TOKENS, engines, driver_of)
    await router.start()
    try:
        client = await connect(router.port)
        client.publish(fleet(replicas=("r1", "r2")))
        for number in range(FAULTS_TO_AVOID):
            lease = await client.acquire(ask(f"l{number}", excluded=("r2",)))
            client.release(LeaseEnd(lease.lease_id, Finish.ENGINE_ERROR, engine_fault=True))
        replica = router.dispatcher.fleet.replicas["r1"]
        await eventually(lambda: replica.breaker.open)
        assert replica.breaker.reason == "a probe of the router failed"
        assert [url for url, _ in engines.asked][:1] == ["http://127.0.0.1/r1"]
        assert b'slipstream_router_generation_probes_total{replica="r1"}' in generate_latest(router.metrics.registry)
        engines.answers.clear()
        await eventually(lambda: not replica.breaker.open and not replica.breaker.half_open)
    finally:
        await router.stop()
