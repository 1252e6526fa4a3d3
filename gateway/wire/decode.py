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
from gateway.wire.body_shape import BodyShape
from gateway.wire.config import RequestConfig
from gateway.wire.openai.schema import (
    TOKEN_ID_TEXT,
    UNSUPPORTED_CHAT,
    AssistantMessage,
    ChatRequest,
    Common,
    CompletionRequest,
)

MOST_QUOTED = 200
"""Characters of a client's own text that an error repeats."""
RequestT = TypeVar("RequestT")

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_TOKEN_ID = re.compile(TOKEN_ID_TEXT)
_BYTE = re.compile(r"\(byte (\d+)\)")


class Decoder:
    """Holds the compiled msgspec decoders: making one costs milliseconds, using it microseconds.

    A decoder builds whatever a body holds before it looks at any bound of a list: give the body's bytes to a `shape`
    first.
    """

    def __init__(self, config: RequestConfig | None = None) -> None:
        """config: None: the defaults."""
        self._config = config or RequestConfig()
        self._chat = msgspec.json.Decoder(ChatRequest)
        self._completion = msgspec.json.Decoder(CompletionRequest)

    def shape(self) -> BodyShape:
        """Counts one body."""
        return BodyShape(self._config)

    def chat(self, body: bytes) -> ChatRequest:
        """Raises a RequestError that names the field."""
        request = decode(self._chat, body, ChatRequest)
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                message.annotations = None
        self._require_plain_arguments(request)
        _require_token_ids(request)
        return request

    def completion(self, body: bytes) -> CompletionRequest:
        """Raises a RequestError that names the field."""
        request = decode(self._completion, body, CompletionRequest)
        _require_token_ids(request)
        return request

    def _require_plain_arguments(self, request: ChatRequest) -> None:
        """Templates and prefix chains see a call's `arguments` decoded, so that their structure counts like the body's;
        the calls of one request are counted together."""
        shape = self.shape()
        for at, message in enumerate(request.messages):
            if not isinstance(message, AssistantMessage):
                continue
            for number, call in enumerate(message.tool_calls or ()):
                try:
                    shape.feed(call.function.arguments.encode())
                except RequestError as error:
                    param = f"messages[{at}].tool_calls[{number}].function.arguments"
                    if isinstance(error, InvalidJson):
                        raise InvalidField(f"'{param}' is nested too deeply.", param=param) from None
                    error.param = param
                    raise
                shape.end()


def _require_token_ids(request: Common) -> None:
    for name in request.logit_bias or ():
        if not _TOKEN_ID.match(name):
            raise InvalidField(
                f"'logit_bias' has {_shortened(repr(name))} for a token id; ids are decimal numbers.",
                param="logit_bias",
            )


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
    path = where.removeprefix("`key` in ").strip("`").removeprefix("$").removeprefix(".")
    if unknown := _UNKNOWN.fullmatch(message):
        return _unknown_field(unknown.group(1), path, kind)
    if missing := _MISSING.fullmatch(message):
        name = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return MissingField(f"Missing required parameter: '{name}'.", param=name)
    if not path:
        return InvalidField(f"The body must be a JSON object: {message.lower()}.")
    message = _shortened(message.replace("`", "'"))
    return InvalidField(f"Invalid value for '{path}': {message[0].lower()}{message[1:]}.", param=path)


def _shortened(text: str) -> str:
    """A value of megabytes has no place in an error, a log line or a trace."""
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}…"


def _unknown_field(name: str, path: str, kind: type) -> RequestError:
    # before anything is compared with it: looking for the nearest name is slow for a long one
    name = _shortened(name)
    full = f"{path}.{name}" if path else name
    if not path and kind is ChatRequest and name in UNSUPPORTED_CHAT:
        return UnsupportedField(f"Unsupported parameter: '{name}' is not available on this deployment.", param=name)
    nearest = [] if path else difflib.get_close_matches(name, [field.name for field in msgspec.structs.fields(kind)], 1)
    hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
    reason = "is not part of this API."
    if kind in (ChatRequest, CompletionRequest):
        reason = "is not part of this API; parameters private to an engine are not passed on."
    return UnknownField(f"Unknown parameter: '{full}' {reason}{hint}", param=full)
