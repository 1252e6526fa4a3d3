"""Client bytes to typed requests, with OpenAI-shaped errors that name the field."""

from __future__ import annotations

import difflib
import re
from typing import TypeVar

import msgspec

from contracts.errors import (
    InvalidField,
    InvalidJson,
    MissingField,
    RequestError,
    UnknownField,
    UnsupportedField,
)
from gateway.openai.schema import UNSUPPORTED_CHAT, ChatRequest, CompletionRequest

RequestT = TypeVar("RequestT")

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_BYTE = re.compile(r"\(byte (\d+)\)")


class Decoder:
    """Holds the compiled msgspec decoders: making one costs milliseconds, using it microseconds."""

    def __init__(self) -> None:
        self._chat = msgspec.json.Decoder(ChatRequest)
        self._completion = msgspec.json.Decoder(CompletionRequest)

    def chat(self, body: bytes) -> ChatRequest:
        """Raises a RequestError that names the field."""
        return decode(self._chat, body, ChatRequest)

    def completion(self, body: bytes) -> CompletionRequest:
        """Raises a RequestError that names the field."""
        return decode(self._completion, body, CompletionRequest)


def decode(decoder: msgspec.json.Decoder[RequestT], body: bytes, kind: type[RequestT]) -> RequestT:
    """The body as the struct the decoder was made for. Raises a RequestError that names the field."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise validation_error(str(error), kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _syntax_error(str(error), body) from None
    except RecursionError:
        raise InvalidJson("The body is nested too deeply.") from None


def _syntax_error(text: str, body: bytes) -> InvalidJson:
    """`JSON is malformed: … (byte 17)` with the line and column a person looks for."""
    if not body:
        return InvalidJson("The body is empty; a JSON object is expected.")
    found = _BYTE.search(text)
    position = int(found.group(1)) if found else len(body)
    before = body[:position]
    line = before.count(b"\n") + 1
    column = position - (before.rfind(b"\n") + 1) + 1
    reason = text.removeprefix("JSON is malformed: ").partition(" (byte")[0]
    return InvalidJson(f"The body is not valid JSON: {reason} at byte {position} (line {line}, column {column}).")


def validation_error(text: str, kind: type) -> RequestError:
    """What msgspec says, as our error; kind: the struct that was decoded."""
    message, _, where = text.partition(" - at ")
    path = where.strip("`").removeprefix("key in ").removeprefix("$").removeprefix(".")
    if unknown := _UNKNOWN.fullmatch(message):
        return _unknown_field(unknown.group(1), path, kind)
    if missing := _MISSING.fullmatch(message):
        name = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return MissingField(f"Missing required parameter: '{name}'.", param=name)
    if not path:
        return InvalidField(f"The body must be a JSON object: {message.lower()}.")
    message = message.replace("`", "'")
    return InvalidField(f"Invalid value for '{path}': {message[0].lower()}{message[1:]}.", param=path)


def _unknown_field(name: str, path: str, kind: type) -> RequestError:
    full = f"{path}.{name}" if path else name
    if not path and kind is ChatRequest and name in UNSUPPORTED_CHAT:
        return UnsupportedField(f"Unsupported parameter: '{name}' is not available on this deployment.", param=name)
    nearest = [] if path else difflib.get_close_matches(name, [field.name for field in msgspec.structs.fields(kind)], 1)
    hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
    reason = "is not part of this API."
    if kind in (ChatRequest, CompletionRequest):
        reason = "is not part of this API; parameters private to an engine are not passed on."
    return UnknownField(f"Unknown parameter: '{full}' {reason}{hint}", param=full)
