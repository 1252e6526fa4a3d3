"""Decodes client bytes to requests of the Responses API, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from contracts.engine_parameters import may_pass
from contracts.errors import InvalidField, InvalidJson, MissingField, UnknownField, UnsupportedField
from gateway.wire.decode import Others, decode, without_nulls_in_parts
from gateway.wire.openai.foreign_names import NOT_PASSED_ON, WITHOUT_EFFECT
from gateway.wire.openai.schema import ChatRequest
from gateway.wire.responses.schema import UNSUPPORTED, CountedRequest, ResponsesRequest

_LENGTH = "write 'max_output_tokens'."
ADVICE: Mapping[str, str] = {
    "max_completion_tokens": _LENGTH,
    "max_new_tokens": _LENGTH,
    "max_tokens": _LENGTH,
    "messages": "write 'input'.",
    "prompt": "write 'instructions' and 'input'.",
    "reasoning_effort": "write 'reasoning' with 'effort'.",
    "response_format": "write 'text' with 'format'.",
}
"""The next step, by the name of a field that clients know from other APIs."""
WITHOUT = {
    **WITHOUT_EFFECT,
    "moderation": (b"null",),
    "top_logprobs": (b"0",),
}
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_NULL = msgspec.Raw(b"null")
RequestT = TypeVar("RequestT", bound=msgspec.Struct)


def _may_pass(name: str) -> bool:
    """Whether a name may be an engine's parameter; a name of OpenAI's own APIs may not."""
    return (
        may_pass(name) and name not in UNSUPPORTED and name not in ADVICE and name not in ChatRequest.__struct_fields__
    )


OTHERS = Others("extra_body", _may_pass)


class RequestDecoder(Generic[RequestT]):
    """Holds a compiled decoder. Give the body's bytes to a `BodyShape` first."""

    def __init__(self, kind: type[RequestT]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)

    def decode(self, body: bytes) -> RequestT:
        """Raises a RequestError that names the field."""
        try:
            request = self._decoded(body)
        except (UnknownField, MissingField) as error:
            if error.param is None or not error.param.startswith(("input[", "items[", "tools[")):
                raise
            try:
                request = self._decoded(_with_types(body))
            except (InvalidJson, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                decode(_any, body, self._kind)  # raises InvalidJson, with the position in the client's own text
                raise
        if isinstance(request, CountedRequest):
            _require_available(request)
        return request

    def _decoded(self, body: bytes) -> RequestT:
        return decode(self._decoder, body, self._kind, UNSUPPORTED, NOT_PASSED_ON, ADVICE, WITHOUT, OTHERS)


def _with_types(body: bytes) -> bytes:
    """The body with the types that messages and references may omit, and without null fields of items, of their parts
    and of tools: typed clients write all the fields that they know."""
    fields = _decode_fields(body)
    for name in ("input", "items", "tools"):
        items = fields.get(name, b"")
        if bytes(items).lstrip().startswith(b"["):
            fields[name] = msgspec.Raw(msgspec.json.encode([_with_type(item) for item in _decode_list(items)]))
    return msgspec.json.encode(fields)


def _with_type(item: msgspec.Raw) -> dict[str, msgspec.Raw] | msgspec.Raw:
    try:
        fields = _decode_fields(item)
    except msgspec.ValidationError:
        return item  # not an object: the body's own decoder names its index
    kept = {
        name: without_nulls_in_parts(value) if name in ("content", "output") else value
        for name, value in fields.items()
        if value != _NULL
    }
    if "type" not in kept:
        kind = b'"message"' if "role" in kept or "content" in kept else b'"item_reference"'
        kept = {"type": msgspec.Raw(kind), **kept}
    return kept


def _require_available(request: CountedRequest) -> None:
    if request.conversation is not None and request.previous_response_id is not None:
        raise InvalidField(
            "'conversation' and 'previous_response_id' cannot be combined, because each selects the history. Remove "
            "one of them.",
            param="conversation",
        )
    if request.truncation == "auto":
        raise UnsupportedField(
            "'truncation' is 'auto', but Slipstream does not truncate prompts. Remove it, and shorten 'input'.",
            param="truncation",
        )
    if isinstance(request, ResponsesRequest) and request.background:
        _require_retrievable(request)


def _require_retrievable(request: ResponsesRequest) -> None:
    """Set `store`, because a background response is stored. Raises InvalidField if it is false."""
    if request.store is False:
        raise InvalidField(
            "'store' is false, but a background response must be stored to be retrieved. Remove 'store' or "
            "'background'.",
            param="store",
        )
    request.store = True
