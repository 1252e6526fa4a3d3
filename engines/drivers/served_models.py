"""An engine's list of models, `GET /v1/models`, which every dialect has. llama.cpp reports its context elsewhere."""

from __future__ import annotations

import msgspec

from contracts.errors import EngineFailed
from engines.drivers.base import EngineRequest
from engines.drivers.engine_json import decode_engine_json

MODELS = EngineRequest("GET", "/v1/models")
PROPS = EngineRequest("GET", "/props")
"""An endpoint of llama.cpp's server, whose list of models has no `max_model_len`."""


class ServedModel(msgspec.Struct, frozen=True):
    """id: the name for requests. max_model_len: the longest prompt and response together; None if not reported."""

    id: str
    max_model_len: int | None = None


class _List(msgspec.Struct, frozen=True):
    data: list[ServedModel]


def parse_served_models(body: bytes) -> list[ServedModel]:
    """The models in a response to MODELS. Raises EngineFailed for an invalid response."""
    return decode_engine_json(
        body, _List, "The engine's answer to GET /v1/models did not return a list of models."
    ).data


class _Generation(msgspec.Struct, frozen=True):
    n_ctx: int | None = None


class _Props(msgspec.Struct, frozen=True):
    default_generation_settings: _Generation = _Generation()


def parse_context_tokens(body: bytes) -> int | None:
    """The context of one slot, from a response to PROPS; None if it is missing or the response cannot be read."""
    try:
        props = decode_engine_json(body, _Props, "")
    except EngineFailed:
        return None
    return props.default_generation_settings.n_ctx
