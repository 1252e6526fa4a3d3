"""OpenAPI document of Mistral's endpoint."""

from __future__ import annotations

from gateway.wire.mistral.schema import FimCompletion, FimRequest
from gateway.wire.operation import Operation

FIM_PATH = "/v1/fim/completions"
FIM_OPERATION = Operation(
    path=FIM_PATH,
    name="create_fim_completion",
    summary="Fill the gap between a prompt and a suffix, for Mistral's clients.",
    body=FimRequest,
    answer=FimCompletion,
)
