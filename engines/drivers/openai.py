"""The plain OpenAI HTTP API, which llama.cpp and hosted services serve. It has neither ids nor an abort call: closing
the connection stops a request."""

from __future__ import annotations

import msgspec

from contracts.errors import SlipstreamError, UnsupportedField
from contracts.generation import ChatPrompt, Generation, TextPrompt
from contracts.pooling import PoolingWork
from engines.drivers.base import Capabilities, Driver, EngineRequest
from engines.drivers.error_bodies import engine_error
from engines.drivers.openai_body import JsonObject, openai_body, path_of
from engines.drivers.pooling_body import pooling_body
from engines.drivers.served_models import MODELS


class OpenAIDriver(Driver):
    """Drives any server that speaks OpenAI's completions and chat completions.

    continuous_usage_stats, cache_salt, max_completion_tokens: the pool's options of these names. Servers ignore or
    refuse unknown fields, so each of these is sent only if the pool declares that its engines have it.
    """

    name = "openai"

    def __init__(
        self, *, continuous_usage_stats: bool = False, cache_salt: bool = False, max_completion_tokens: bool = False
    ) -> None:
        self._cache_salt = cache_salt
        self._max_completion_tokens = max_completion_tokens
        self._stream_options: JsonObject = {"include_usage": True}
        if continuous_usage_stats:
            self._stream_options["continuous_usage_stats"] = True
        self.capabilities = Capabilities(
            running_count=continuous_usage_stats,
            token_prompts=False,
            literal_text=False,
            usage_by_id=False,
            stop_ids=False,
            min_tokens=False,
            salted_cache=cache_salt,
            embeds=True,
            scores=True,
            dialects=(self.name,),
        )

    def generate(self, generation: Generation, engine_model: str) -> EngineRequest:
        if isinstance(generation.prompt, TextPrompt) and generation.prompt.begins_with:
            raise UnsupportedField("This engine cannot make its output begin with a given text.", param="prompt")
        body = openai_body(generation, engine_model)
        body["stream_options"] = self._stream_options
        if self._cache_salt and generation.cache_salt:
            body["cache_salt"] = generation.cache_salt
        if self._max_completion_tokens and isinstance(generation.prompt, ChatPrompt):
            body["max_completion_tokens"] = body.pop("max_tokens")
        return EngineRequest("POST", path_of(generation), msgspec.json.encode(body))

    def pooled(self, work: PoolingWork, generation: Generation, engine_model: str) -> EngineRequest:
        path, body = pooling_body(work, engine_model)
        return EngineRequest("POST", path, msgspec.json.encode(body))

    def error(self, status: int, body: bytes) -> SlipstreamError:
        return engine_error(status, body)

    def health(self) -> EngineRequest:
        """The only GET endpoint that all these servers have."""
        return MODELS
