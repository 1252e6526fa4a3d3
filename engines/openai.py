"""The plain OpenAI HTTP API, as vLLM and llama.cpp serve it: no ids, no abort, stopped by closing the connection."""

from __future__ import annotations

import msgspec

from contracts.errors import SlipstreamError
from contracts.generation import Generation
from contracts.usage import Usage
from engines.answers import engine_error
from engines.base import Capabilities, EngineRequest, Load
from engines.openai_body import openai_body, path_of


class OpenAIDriver:
    """Drives any server that speaks OpenAI's completions and chat completions."""

    name = "openai"
    capabilities = Capabilities(
        abort_by_id=False,
        final_count=False,
        # vLLM has it as an extra, llama.cpp refuses or ignores it: nothing may depend on it
        running_count=False,
        token_prompts=False,
        literal_text=False,
        usage_by_id=False,
    )

    def generate(self, generation: Generation, engine_model: str) -> EngineRequest:
        body = openai_body(generation, engine_model)
        body["stream_options"] = {"include_usage": True}
        return EngineRequest("POST", path_of(generation), msgspec.json.encode(body))

    def abort(self, request_id: str, choices: int = 1) -> EngineRequest | None:
        return None

    def usage_by_id(self, request_id: str) -> EngineRequest | None:
        return None

    def parse_usage_by_id(self, status: int, body: bytes) -> Usage | None:
        return None

    def error(self, status: int, body: bytes) -> SlipstreamError:
        return engine_error(status, body)

    def health(self) -> EngineRequest:
        """The one GET that all of them have."""
        return EngineRequest("GET", "/v1/models")

    def load(self) -> EngineRequest | None:
        return None

    def parse_load(self, body: bytes) -> Load:
        return Load()
