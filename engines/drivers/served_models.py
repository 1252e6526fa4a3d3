"""An engine's list of models: `GET /v1/models`, which every dialect has."""

from __future__ import annotations

import msgspec

from engines.drivers.base import EngineRequest
from engines.drivers.engine_json import decode_engine_json

MODELS = EngineRequest("GET", "/v1/models")


class ServedModel(msgspec.Struct, frozen=True):
    """id: the name requests must give. max_model_len: the longest prompt and answer; None where it is not said."""

    id: str
    max_model_len: int | None = None


class _List(msgspec.Struct, frozen=True):
    data: list[ServedModel]


def parse_served_models(body: bytes) -> list[ServedModel]:
    """The response to MODELS. Raises EngineFailed for an invalid one."""
    return decode_engine_json(body, _List, "The engine's answer to GET /v1/models is no list of models.").data
