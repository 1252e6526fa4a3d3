"""What the OpenAPI document says of Mistral's endpoint."""

from __future__ import annotations

from gateway.wire.mistral.schema import FimCompletion, FimRequest
from gateway.wire.operation import Operation

FIM_PATH = "/v1/fim/completions"
FIM_OPERATION = Operation(
    path=FIM_PATH,
    name="create_fim_completion",
    summary="Fill the gap between a prompt and a suffix, as Mistral's clients ask for it.",
    body=FimRequest,
    answer=FimCompletion,
)
