"""OpenAPI document of creating a response."""

from __future__ import annotations

from gateway.wire.operation import Operation
from gateway.wire.responses.openapi_response import Response
from gateway.wire.responses.schema import ResponsesRequest

RESPONSES_PATH, INPUT_TOKENS_PATH = "/v1/responses", "/v1/responses/input_tokens"
RESPONSES_OPERATION = Operation(
    path=RESPONSES_PATH,
    name="create_response",
    summary="Generate a response, as OpenAI's Responses API does.",
    body=ResponsesRequest,
    answer=Response,
)
