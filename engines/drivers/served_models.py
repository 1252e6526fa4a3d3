"""An engine's list of models: `GET /v1/models`, which every dialect has; llama.cpp's context is in another answer."""

from __future__ import annotations

import msgspec

from contracts.errors import EngineFailed
from engines.drivers.base import EngineRequest
from engines.drivers.engine_json import decode_engine_json

MODELS = EngineRequest("GET", "/v1/models")
PROPS = EngineRequest("GET", "/props")
"""Of llama.cpp's server, whose list of models has no `max_model_len`."""


class ServedModel(msgspec.Struct, frozen=True):
    """id: the name requests must give. max_model_len: the longest prompt and answer; None where it is not said."""

    id: str
    max_model_len: int | None = None


class _List(msgspec.Struct, frozen=True):
    data: list[ServedModel]


def parse_served_models(body: bytes) -> list[ServedModel]:
    """The response to MODELS. Raises EngineFailed for an invalid one."""
    return decode_engine_json(
        body, _List, "The engine's answer to GET /v1/models did not return a list of models."
    ).data


class _Generation(msgspec.Struct, frozen=True):
    n_ctx: int | None = None


class _Props(msgspec.Struct, frozen=True):
    default_generation_settings: _Generation = _Generation()


def parse_context_tokens(body: bytes) -> int | None:
    """The response to PROPS: the longest prompt and answer of one slot. None where it has none, or cannot be read."""
    try:
        props = decode_engine_json(body, _Props, "")
    except EngineFailed:
        return None
    return props.default_generation_settings.n_ctx
