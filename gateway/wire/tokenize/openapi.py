"""OpenAPI document of vLLM's endpoints for token ids."""

from __future__ import annotations

from gateway.wire.operation import Operation
from gateway.wire.tokenize.schema import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest

TOKENIZE_PATH, DETOKENIZE_PATH = "/tokenize", "/detokenize"
TOKEN_OPERATIONS = (
    Operation(
        path=TOKENIZE_PATH,
        name="tokenize",
        summary="Return the token ids of a text or a conversation.",
        body=TokenizeRequest,
        answer=Tokenized,
        streamed=False,
    ),
    Operation(
        path=DETOKENIZE_PATH,
        name="detokenize",
        summary="Return the text of token ids.",
        body=DetokenizeRequest,
        answer=Detokenized,
        streamed=False,
    ),
)
