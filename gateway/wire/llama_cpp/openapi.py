"""OpenAPI document of llama.cpp's endpoints. `answer.py` writes the responses, `errors.py` the errors."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gateway.wire.llama_cpp.errors import LlamaError
from gateway.wire.llama_cpp.schema import InfillRequest, LlamaCompletionRequest
from gateway.wire.operation import Operation

INFILL_PATH, LLAMA_COMPLETION_PATH = "/infill", "/completion"
"""Not `/completions`, llama.cpp's other name: here, OpenAI's clients request that path by mistake."""


class LlamaTimings(msgspec.Struct):
    """Tokens and milliseconds."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class LlamaAnswer(msgspec.Struct):
    """One completion. With `response_fields` it has those instead, each under its whole path."""

    index: int = 0
    content: str = ""
    tokens: list[int] = []
    id_slot: int = -1
    stop: bool = True
    model: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    generation_settings: dict[str, Any] = {}
    has_new_line: bool = False
    truncated: bool = False
    stop_type: Literal["eos", "limit"] = "eos"
    stopping_word: str = ""
    tokens_cached: int = 0
    timings: LlamaTimings | None = None


LLAMA_CPP_OPERATIONS = (
    Operation(
        path=INFILL_PATH,
        name="infill",
        summary="Fill a gap for llama.cpp's clients. Errors have llama.cpp's shape.",
        body=InfillRequest,
        answer=LlamaAnswer | list[LlamaAnswer],
        error=LlamaError,
    ),
    Operation(
        path=LLAMA_COMPLETION_PATH,
        name="complete_as_llama_cpp",
        summary="Continue a prompt for llama.cpp's clients. Errors have llama.cpp's shape.",
        body=LlamaCompletionRequest,
        answer=LlamaAnswer | list[LlamaAnswer],
        error=LlamaError,
    ),
)
