"""Loads and unloads LoRA adapters over SGLang's API."""

from __future__ import annotations

from typing import Any

from engines.embedded.http.bodies import LoadAdapterBody, UnloadAdapterBody, decode_body
from engines.embedded.http.exchange import Exchange
from engines.embedded.service import Service


class AdapterHandlers:
    """POST /load_lora_adapter and POST /unload_lora_adapter."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def load(self, exchange: Exchange) -> None:
        """200 once requests may name it; 400 if the adapter is faulty or already loaded; 503 if the maximum is loaded
        and all are in use."""
        body = decode_body(await exchange.body(self._service.config.max_body_bytes), LoadAdapterBody)
        adapter = await self._service.load_adapter(body.lora_name, body.lora_path)
        await exchange.answer_json({**self._told(), "rank": adapter.rank, "bytes": adapter.size_bytes})

    async def unload(self, exchange: Exchange) -> None:
        """200 once no request uses it any more; 400 if it is not loaded."""
        body = decode_body(await exchange.body(self._service.config.max_body_bytes), UnloadAdapterBody)
        await self._service.unload_adapter(body.lora_name)
        await exchange.answer_json(self._told())

    def _told(self) -> dict[str, Any]:
        loaded = {adapter.name: adapter.path for adapter in self._service.adapters.loaded}
        return {"success": True, "error_message": "", "loaded_adapters": loaded}
