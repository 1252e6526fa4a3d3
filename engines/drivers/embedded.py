"""The embedded engine's dialect: SGLang's, with guarantees that SGLang does not give."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from contracts.errors import EngineFailed
from contracts.generation import Generation
from contracts.pooling import EmbeddingWork
from contracts.usage import Usage
from engines.drivers.base import Capabilities, EngineRequest, Load
from engines.drivers.engine_json import UNREADABLE_LOAD, decode_engine_json
from engines.drivers.error_bodies import usage_of, with_drafts
from engines.drivers.openai_body import JsonObject
from engines.drivers.parameters import EMBEDDED
from engines.drivers.sglang import SGLangDriver

UNREADABLE_USAGE = "The engine's answer about a past request cannot be read."


class _OwnLoad(msgspec.Struct, frozen=True):
    """Fields that SGLang's load report lacks; see `Load`."""

    step_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    share_behind: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    promised_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    output_reserve: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class EmbeddedDriver(SGLangDriver):
    """Drives `python -m slipstream engine`."""

    name = "embedded"
    capabilities = Capabilities(
        running_count=True,
        token_prompts=True,
        literal_text=True,
        usage_by_id=True,
        tools_in_prompt="callable",
        openings=True,
        own_openings=True,
        adapters=True,
        embeds=True,
        dialects=(name,),
        parameters=EMBEDDED,
    )
    fills_gaps = True
    scores_prompts = True
    aborts_choices = True
    no_counters = "The engine shows no counters yet: its model is still being loaded."

    def parse_load(self, body: bytes) -> Load:
        """Read SGLang's fields and ours: how prompts share a step, and the reserved memory."""
        load = super().parse_load(body)
        try:
            ranks = decode_engine_json(body, dict[str, Any], UNREADABLE_LOAD)["loads"]
            own = msgspec.convert(ranks[0], _OwnLoad, strict=False)
        except (msgspec.ValidationError, LookupError, TypeError):
            raise EngineFailed(UNREADABLE_LOAD) from None
        return msgspec.structs.replace(load, **msgspec.structs.asdict(own))

    def _own_fields(self, generation: Generation) -> JsonObject:
        fields: JsonObject = {"speculation": False} if generation.no_drafts else {}
        if generation.start_within_s is not None:
            fields["start_within_s"] = generation.start_within_s
        return fields

    def _vector_fields(self, work: EmbeddingWork, generation: Generation) -> JsonObject:
        return {"rid": generation.request_id, "cache_salt": generation.cache_salt}

    def _forced(self, opening: str) -> JsonObject:
        return {"begins_with": opening}

    def usage_by_id(self, request_id: str) -> EngineRequest | None:
        """200 with `{"rid", "usage": {…}}` for a request that has ended, else 404."""
        return EngineRequest("GET", f"/usage?rid={quote(request_id, safe='')}")

    def parse_usage_by_id(self, status: int, body: bytes) -> Usage | None:
        if status == 404:
            return None
        try:
            reply = decode_engine_json(body, dict[str, Any], UNREADABLE_USAGE) if status == 200 else {}
            usage = reply["usage"]
        except KeyError:
            raise EngineFailed(UNREADABLE_USAGE) from None
        return with_drafts(usage_of(usage), reply.get("sglext"))
