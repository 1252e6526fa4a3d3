"""llama.cpp's server: OpenAI's HTTP API, with a health check of its own and a page that reports its queue. A request
is stopped by closing its connection."""

from __future__ import annotations

import msgspec

from contracts.errors import EngineFailed
from engines.drivers.base import EngineRequest, Load
from engines.drivers.counters import sums_of_page
from engines.drivers.openai import OpenAIDriver
from engines.drivers.parameters import LLAMA_CPP

_RUNNING, _WAITING = _GAUGES = b"llamacpp:requests_processing", b"llamacpp:requests_deferred"


class LlamaCppDriver(OpenAIDriver):
    """Drives `llama-server`, started with `--metrics`."""

    name = "llama_cpp"

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = msgspec.structs.replace(self.capabilities, parameters=LLAMA_CPP)

    def health(self) -> EngineRequest:
        """Returns 503 while the model loads, when `/v1/models` already returns 200; needs no key."""
        return EngineRequest("GET", "/health")

    def load(self) -> EngineRequest | None:
        return EngineRequest("GET", "/metrics")

    def parse_load(self, body: bytes) -> Load:
        sums = sums_of_page(body, lambda name, _: name in _GAUGES)
        if not sums.keys() >= {*_GAUGES}:
            raise EngineFailed("The engine reports no queue; was it started with --metrics?")
        return Load(running=round(sums[_RUNNING]), waiting=round(sums[_WAITING]))
