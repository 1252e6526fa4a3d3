"""All endpoints except generation: health, model and server information, load, abort, past usage and metrics."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from contracts.errors import NotFound
from engines.embedded.http.bodies import AbortBody, decode_body
from engines.embedded.http.exchange import Exchange
from engines.embedded.metrics import EngineCollector
from engines.embedded.scheduler import SHARE_BEHIND
from engines.embedded.service import Service

USAGE_WAIT_S = 5.0


class ControlHandlers:
    """Endpoints for operators, routers and gateways."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(EngineCollector(service))

    async def health(self, exchange: Exchange) -> None:
        """200 if a request would be accepted, else 503. Needs no token."""
        await exchange.answer(200 if self._service.ready else 503, b"")

    async def model_info(self, exchange: Exchange) -> None:
        """Describe the served model."""
        await exchange.answer_json(
            {
                "model_path": self._service.config.model,
                "tokenizer_path": self._service.config.model,
                "is_generation": self._service.pooling is None,
                "served_model_name": self._service.name,
                "max_context_length": self._service.context_tokens,
                "vocab_size": self._service.model.vocab_size,
            }
        )

    async def models(self, exchange: Exchange) -> None:
        """OpenAI's list of models: the model and the loaded adapters."""
        card = {
            "id": self._service.name,
            "object": "model",
            "created": 0,
            "owned_by": "slipstream",
            "root": self._service.name,
            "max_model_len": self._service.context_tokens,
        }
        adapters = [
            {**card, "id": adapter.name, "root": adapter.path, "parent": self._service.name}
            for adapter in self._service.adapters.loaded
        ]
        await exchange.answer_json({"object": "list", "data": [card, *adapters]})

    async def server_info(self, exchange: Exchange) -> None:
        """Return settings and state."""
        config, load, engine = self._service.config, self._load(), self._service.engine
        await exchange.answer_json(
            {
                "model_path": config.model,
                "served_model_name": self._service.name,
                "max_total_num_tokens": load["max_total_num_tokens"],
                "max_running_requests": config.scheduler.max_running,
                "chunked_prefill_size": config.scheduler.max_batch_tokens,
                "page_size": config.kv.page_tokens,
                "context_length": self._service.context_tokens,
                "engine": "slipstream-embedded",
                "device": str(engine.device) if engine else None,
                "dtype": str(engine.dtype).removeprefix("torch.") if engine else None,
                "kv_cache_dtype": engine.store.format if engine else None,
                "quantization": None if config.quantization == "none" else config.quantization,
                "speculative_algorithm": None
                if config.speculation.method == "off"
                else config.speculation.method.upper(),
                "threads": config.threads,
                "max_loaded_loras": config.lora.max_loaded,
                "lora_bytes": sum(adapter.size_bytes for adapter in self._service.adapters.loaded),
                "kv_events": engine.events.description() if engine else None,
                "internal_states": [
                    {
                        "last_gen_throughput": load["gen_throughput"],
                        "avg_spec_accept_length": load["spec_accept_length"],
                    }
                ],
            }
        )

    async def loads(self, exchange: Exchange) -> None:
        """Running and waiting requests, and memory, in one entry because there is one rank."""
        await exchange.answer_json({"dp_rank_count": 1, "loads": [{"dp_rank": 0, **self._load()}]})

    async def abort(self, exchange: Exchange) -> None:
        """Stop requests whose id starts with `rid`, or all. An unknown id is no error, and a request with exactly that
        id that arrives shortly afterwards is stopped too."""
        body = decode_body(await exchange.body(self._service.config.max_body_bytes), AbortBody)
        if body.abort_all or body.rid:
            self._service.abort("" if body.abort_all else body.rid, prefix=True)
        await exchange.answer(200, b"")

    async def flush_cache(self, exchange: Exchange) -> None:
        """Clear all cached prefixes: 200, or 400 while requests run or wait, like SGLang."""
        flushed = await self._service.flush_cache()
        text = b"Cache flushed.\n" if flushed else b"Cache not flushed: requests are running or waiting.\n"
        await exchange.answer(200 if flushed else 400, text, (b"content-type", b"text/plain; charset=utf-8"))

    async def usage(self, exchange: Exchange) -> None:
        """The final usage of a request. Waits for a running request, because its gateway has just died and the engine
        will soon notice. 404 if the request is unknown, no longer kept, or still runs after `USAGE_WAIT_S`."""
        rid = exchange.query("rid")
        live = self._service.live.get(rid)
        if live is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(USAGE_WAIT_S):
                    await live.ended.wait()
        usage = self._service.history.get(rid)
        if usage is None or rid in self._service.live:
            raise NotFound(f"No finished request with the id {rid!r} is known.", param="rid")
        extension = usage.extension()
        extra = {"sglext": extension} if extension is not None else {}
        await exchange.answer_json({"rid": rid, "usage": usage.wire(), **extra})

    async def metrics(self, exchange: Exchange) -> None:
        """Return the metrics in Prometheus' text format."""
        body = generate_latest(self._registry)
        await exchange.answer(200, body, (b"content-type", CONTENT_TYPE_LATEST.encode()))

    def _load(self) -> dict[str, Any]:
        engine = self._service.engine
        if engine is None:
            idle = {"gen_throughput": 0.0, "spec_accept_length": 0.0}
            return {"num_running_reqs": 0, "num_waiting_reqs": 0, "max_total_num_tokens": 0, **idle}
        scheduler, store = engine.scheduler, engine.store
        running = len(scheduler.running)
        waiting = max(self._service.unfinished_choices - running, 0)
        used_tokens = scheduler.used_pages * store.page_tokens
        return {
            "num_running_reqs": running,
            "num_waiting_reqs": waiting,
            "num_total_reqs": running + waiting,
            "num_used_tokens": used_tokens,
            "promised_tokens": scheduler.promised_pages * store.page_tokens,
            "output_reserve": self._service.config.scheduler.output_reserve,
            "max_total_num_tokens": store.total_tokens,
            "token_usage": used_tokens / store.total_tokens,
            "num_retracted_requests": scheduler.preemptions,
            "gen_throughput": engine.stats.throughput,
            "spec_accept_length": engine.stats.accept_length,
            "max_running_requests": self._service.config.scheduler.max_running,
            "step_tokens": scheduler.step_tokens,
            "share_behind": 1 / SHARE_BEHIND,
        }
