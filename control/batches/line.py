"""Reads a batch's input file: each line's request, and the errors for which OpenAI refuses the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from contracts.errors import RequestError
from contracts.misfit import missing_field, sentence_and_path, shortened
from control.batches.config import LINE_BYTES, MAX_LINES
from gateway.wire.body_shape import BodyShape
from gateway.wire.config import RequestConfig

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
"""Paths that a batch may request."""
MAX_ERRORS = 100
"""Limit of the errors that are reported for one file."""
CUSTOM_ID_CHARACTERS = 512
MAX_NUMBERED = 2 * MAX_LINES
"""Limit of a file's lines, empty ones included: a file of only newlines would occupy the worker for minutes."""


class Line(msgspec.Struct, frozen=True):
    """One request. body: its JSON as written."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class _Asked(msgspec.Struct, frozen=True):
    """The fields of a body that are checked in advance. The gateway checks the rest."""

    model: str
    stream: bool | None = None


class LineError(msgspec.Struct, frozen=True):
    """A mistake, as OpenAI's batches report it. line: from 1 on."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Input(msgspec.Struct, frozen=True):
    """A checked file. model: the model of all lines, if they have the same one."""

    total: int
    model: str | None
    errors: list[LineError]


_ANY_SIZE = RequestConfig(max_containers=1_000_000, max_values=10_000_000)
"""Limits only the depth. The gateway applies its own settings to the rest."""
_LINE, _ASKED = msgspec.json.Decoder(Line), msgspec.json.Decoder(_Asked)


def numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    """Non-empty lines, with their numbers from 1. A line that is too long is cut."""
    return ((number, raw) for number, raw in _all(path) if raw.strip())


def _all(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(LINE_BYTES + 1):
            number += 1
            yield number, raw


def line_of(raw: bytes) -> Line:
    """Decode a line of a checked file."""
    return _LINE.decode(raw)


def checked(path: Path, endpoint: str, model_error: Callable[[str], str | None]) -> Input:
    """Read and check the whole file, which may take seconds. model_error: returns why a model is refused, if it is."""
    errors: list[LineError] = []
    seen: set[str] = set()
    models: set[str] = set()
    refused: dict[str, str | None] = {}
    total = 0
    for number, raw in _all(path):
        if number > MAX_NUMBERED:
            message = f"The file has more than {MAX_NUMBERED} lines, empty ones included; leave those out."
            errors.append(LineError("too_many_lines", message, number))
            break
        if not raw.strip():
            continue
        total += 1
        if total > MAX_LINES:
            message = f"The file holds more than {MAX_LINES} requests; split it into several batches."
            errors.append(LineError("too_many_requests", message, number))
            break
        mistake = _mistake(raw, endpoint, seen)
        if isinstance(mistake, str):
            models.add(model := mistake)
            if model not in refused:
                refused[model] = model_error(model)
            if (why := refused[model]) is None:
                continue
            mistake = LineError("model_not_found", why, param="body.model")
        errors.append(msgspec.structs.replace(mistake, line=number))
        # the rest of a line that is too long would be read as further lines
        if len(errors) == MAX_ERRORS or mistake.code == "line_too_long":
            break
    if not total and not errors:
        errors.append(LineError("empty_file", "The input file contains no requests."))
    return Input(total, models.pop() if len(models) == 1 else None, errors)


def _mistake(raw: bytes, endpoint: str, seen: set[str]) -> LineError | str:
    """The line's error or, without one, its model. seen: ids of the previous lines, to which this line's is added."""
    if len(raw) > LINE_BYTES:
        return LineError("line_too_long", f"This line is longer than {LINE_BYTES} bytes. Shorten or split the request.")
    try:
        BodyShape(_ANY_SIZE).feed(raw)
    except RequestError as error:  # the gateway refuses such a body too
        return LineError("invalid_json_line", error.message)
    try:
        line = _LINE.decode(raw)
        body = _ASKED.decode(line.body)
    except msgspec.ValidationError as error:
        return _misfit(str(error), raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return LineError("invalid_json_line", "This line is not valid JSON.")
    shown = shortened(line.custom_id)
    if not 0 < len(line.custom_id) <= CUSTOM_ID_CHARACTERS:
        allowed = f"it must have 1 to {CUSTOM_ID_CHARACTERS} characters"
        return LineError("invalid_custom_id", f"Invalid value for 'custom_id': {allowed}.", param="custom_id")
    if line.custom_id in seen:
        message = f"The custom_id '{shown}' is a duplicate; each request in a batch needs its own."
        return LineError("duplicate_custom_id", message, param="custom_id")
    seen.add(line.custom_id)
    if line.method != "POST":
        message = f"Invalid value for 'method': '{shortened(line.method)}'. It must be POST."
        return LineError("invalid_method", message, param="method")
    if line.url != endpoint:
        message = f"The URL '{shortened(line.url)}' is not the batch's endpoint, '{endpoint}'."
        return LineError("invalid_url", message, param="url")
    if body.stream:
        message = "Batches do not stream responses. Remove 'stream'."
        return LineError("invalid_value", message, param="body.stream")
    return body.model


def _misfit(text: str, raw: bytes) -> LineError:
    sentence, path = sentence_and_path(text)
    inside = "body." if _has_form(raw) else ""
    if (name := missing_field(sentence)) is not None:
        return LineError(
            "missing_required_parameter", f"Missing required parameter: '{inside}{name}'.", param=inside + name
        )
    param = f"{inside}{path}".removesuffix(".") or None
    message = f"Invalid value for '{param}': {shortened(sentence)}." if param else "A request must be a JSON object."
    return LineError("invalid_value", message, param=param)


def _has_form(raw: bytes) -> bool:
    try:
        _LINE.decode(raw)
    except msgspec.ValidationError:
        return False
    return True


class BatchOutput(msgspec.Struct, frozen=True):
    """A line of the output or error file, in OpenAI's form."""

    id: str
    custom_id: str
    response: dict[str, Any] | None
    error: dict[str, str] | None
