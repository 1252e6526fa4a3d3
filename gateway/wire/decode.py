"""Decodes client bytes to typed structs, with errors that name the field."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from contracts.choices import choices, pattern_in_words, value_type
from contracts.errors import (
    InvalidField,
    InvalidJson,
    MissingField,
    RequestError,
    UnknownField,
    UnsupportedField,
)
from contracts.misfit import MAX_QUOTED, missing_field, sentence_and_path, shortened, unknown_field

NOT_PART = "is not part of this API."
_ALIKE = 0.85
"""Similarity of names that are suggested. Below it, two names often mean two things: `min_tokens` and `max_tokens`."""
_ANY_KEY = "[...]"
MAX_MOVED = 64
"""Limit of the fields that `decode` moves."""
_MAX_KEYS = 1_000
"""Limit of a map's keys that are searched for the invalid one."""
_NO_NAME = re.compile(r"[`.\[\]\s]")
"""Characters that would end a key within a path."""
_NO_ADVICE: Mapping[str, str] = MappingProxyType({})
NULL_IS_ABSENCE: Mapping[str, Collection[bytes]] = MappingProxyType({})
"""For `decode`: only null means absence."""
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_messages = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_NULL = msgspec.Raw(b"null")
_PARTS = ("content", "tool_calls")
"""A message's fields that hold objects."""
_LISTS = ("tools", "system")
"""Fields at the body's top that hold objects."""
_INNER = ("content", "function", "image_url", "source")
"""Fields of parts, calls and tools that hold objects. No JSON of the client's own, such as a schema, is among them."""
_MAX_INNER = 2
"""Depth of an image's source in a tool's result."""
RequestT = TypeVar("RequestT")

_MAX_READ = MAX_QUOTED + 100
"""Characters of a message that patterns search: a quotation from the client and msgspec's words around it."""
_BYTE = re.compile(r"\(byte (\d+)\)")
_NO_CHOICE = re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)
_TYPES = re.compile(r"`([^`]*)`")
_NO_MOMENT = re.compile(r"^Invalid RFC3339|^Expected `datetime|timezone component")
MOMENT_IN_WORDS = "a timestamp with a UTC offset, such as 2026-11-22T09:30:00Z"
_JSON_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


class Others(NamedTuple):
    """Destination of fields that a struct lacks."""

    field: str
    """A map of undecoded values."""
    takes: Callable[[str], bool]
    """Whether the map accepts a field of this name; any other is refused at once."""


def decode(
    decoder: msgspec.json.Decoder[RequestT],
    body: bytes,
    kind: type[RequestT],
    unsupported: Collection[str] = (),
    not_part: str = NOT_PART,
    advice: Mapping[str, str] = _NO_ADVICE,
    without_effect: Mapping[str, Collection[bytes]] | None = None,
    others: Others | None = None,
) -> RequestT:
    """The body as the decoder's struct. unsupported, not_part, advice: see `validation_error`. without_effect: by name,
    JSON values other than null that have no effect in a field that the struct lacks; null then means absence. None if
    null is a value, as in a change of the admin API, so that an unknown field is refused even with null. others: the
    destination of fields that the struct lacks; None to refuse them.

    Raises a RequestError that names the field.
    """
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:  # the decoder has not read the body after the field
            refusal = validation_error(_with_key(str(error), body, kind), kind, unsupported, not_part, advice)
        if without_effect is None or not isinstance(refusal, UnknownField | UnsupportedField):
            raise refusal
        known = _names(kind)
        fields = _asked(body, known, without_effect)
        if others is not None:
            _move_unknown(fields, known, others)
        if (unknown := next((name for name in fields if name not in known), None)) is not None:
            # refuse at once: decoding a large body again would block the loop as long as the first time
            raise _unknown_field(unknown, "", kind, unsupported, not_part, advice)
        try:
            return decoder.decode(msgspec.json.encode(fields))
        except msgspec.ValidationError as error:
            # handled here, because an error raised in a clause of the outer `try` escapes its other clauses
            raise validation_error(_with_key(str(error), body, kind), kind, unsupported, not_part, advice) from None
    except msgspec.ValidationError as error:
        raise validation_error(str(error), kind, unsupported, not_part, advice) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _syntax_error(error, body) from None
    except RecursionError:
        raise InvalidJson("The body is nested too deeply.") from None


def _move_unknown(fields: dict[str, msgspec.Raw], known: Collection[str], others: Others) -> None:
    """Move the unknown fields if the destination accepts all of them and they are not too many."""
    unknown = [name for name in fields if name not in known]
    if not unknown or len(unknown) > MAX_MOVED or not all(map(others.takes, unknown)):
        return
    current = fields.get(others.field, _NULL)
    moved = {} if current == _NULL else _decode_fields(current)
    for name in unknown:
        moved[name] = fields.pop(name)
    fields[others.field] = msgspec.Raw(msgspec.json.encode(moved))


def _asked(
    body: bytes, known: Collection[str], without_effect: Mapping[str, Collection[bytes]]
) -> dict[str, msgspec.Raw]:
    """The body's undecoded fields, without unknown fields that have no effect. Null means absence: clients with typed
    bodies write all the fields that they know, at the body's top, in messages and their parts, and in tools."""
    fields = {
        name: value
        for name, value in _decode_fields(body).items()
        if name in known or bytes(value).strip() not in (b"null", *without_effect.get(name, ()))
    }
    messages = bytes(fields.get("messages", b"")).lstrip()
    if messages.startswith(b"[") and b"null" in messages:
        fields["messages"] = _without_nulls(fields["messages"])
    for name in _LISTS:
        if name in fields:
            fields[name] = without_nulls_in_parts(fields[name])
    return fields


def _names(kind: type) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind))


def _without_nulls(messages: msgspec.Raw) -> msgspec.Raw:
    """Remove null fields in one pass, because a body may have thousands of small messages."""
    try:
        decoded = _decode_messages(messages)
    except msgspec.ValidationError:
        return messages  # one is not an object: the body's own decoder names its index
    kept = [
        {
            name: without_nulls_in_parts(value) if name in _PARTS else value
            for name, value in item.items()
            if value != _NULL or name == "content"
        }
        for item in decoded
    ]
    return msgspec.Raw(msgspec.json.encode(kept))


def without_nulls_in_parts(value: msgspec.Raw, depth: int = 0) -> msgspec.Raw:
    """A list of objects without their null fields and those of the objects in `_INNER`; any other value unchanged."""
    text = bytes(value)
    if b"null" not in text:
        return value
    begin = text.lstrip()[:1]
    kept: object
    try:
        if begin == b"[":
            kept = [_without_null_fields(part, depth) for part in _decode_messages(text)]
        elif begin == b"{" and depth:
            kept = _without_null_fields(_decode_fields(text), depth)
        else:
            return value
    except msgspec.ValidationError:
        return value
    return msgspec.Raw(msgspec.json.encode(kept))


def _without_null_fields(part: dict[str, msgspec.Raw], depth: int) -> dict[str, msgspec.Raw]:
    return {
        name: without_nulls_in_parts(value, depth + 1) if name in _INNER and depth < _MAX_INNER else value
        for name, value in part.items()
        if value != _NULL
    }


def _with_key(text: str, body: bytes, kind: type) -> str:
    """msgspec's message, completed with the key that it omits for a map at the top of the body, as in `metadata.a`."""
    if not text.endswith(f"{_ANY_KEY}`"):
        return text
    field = sentence_and_path(text)[1].removesuffix(_ANY_KEY)
    if not field or (wanted := value_type(kind, field)) is None or (values := _decode_fields(body).get(field)) is None:
        return text
    for key, value in itertools.islice(_decode_fields(values).items(), _MAX_KEYS):
        try:
            msgspec.json.decode(value, type=wanted)
        except msgspec.ValidationError:
            return f"{text.removesuffix(f'{_ANY_KEY}`')}.{_NO_NAME.sub('_', shortened(key))}`"
    return text


def _syntax_error(error: Exception, body: bytes) -> InvalidJson:
    """`JSON is malformed: … (byte 17)` as an error with the line and column."""
    if not body:
        return InvalidJson("The body is empty; a JSON object is expected.")
    text, position = str(error), len(body)
    if isinstance(error, UnicodeDecodeError):  # its position is relative to one string
        text = f"not utf-8 ({error.reason})"
        try:
            body.decode()
        except UnicodeDecodeError as first:
            position = first.start
    elif found := _BYTE.search(text):
        position = int(found.group(1))
    before = body[:position]
    line = before.count(b"\n") + 1
    column = position - (before.rfind(b"\n") + 1) + 1
    reason = text.removeprefix("JSON is malformed: ").partition(" (byte")[0]
    return InvalidJson(f"The body is not valid JSON: {reason} at byte {position} (line {line}, column {column}).")


def validation_error(
    text: str,
    kind: type,
    unsupported: Collection[str] = (),
    not_part: str = NOT_PART,
    advice: Mapping[str, str] = _NO_ADVICE,
) -> RequestError:
    """msgspec's error as a RequestError. kind: the decoded struct. unsupported: fields of the API that this deployment
    lacks. not_part: the phrase for other fields that the struct lacks. advice: by name, for both."""
    message, path = sentence_and_path(text)
    if (unknown := unknown_field(message)) is not None:
        return _unknown_field(unknown, shortened(path), kind, unsupported, not_part, advice)
    if (missing := missing_field(message)) is not None:
        name = shortened(f"{path}.{missing}" if path else missing)
        return MissingField(f"Missing required parameter: '{name}'.", param=name)
    message = message[:_MAX_READ]
    if not path:
        return InvalidField(f"The body must be a JSON object: {_TYPES.sub(_as_json_says, message).lower()}.")
    name = shortened(path)
    if (value := _NO_CHOICE.fullmatch(message)) and (allowed := choices(kind, path)):
        one = "" if len(allowed) == 1 else "one of: "
        quoted = shortened(value.group(1))
        return InvalidField(f"Invalid value for '{name}': {quoted}. It must be {one}{', '.join(allowed)}.", param=name)
    if "matching regex" in message and (wanted := pattern_in_words(kind, path)):
        return InvalidField(f"Invalid value for '{name}': it must be {wanted}.", param=name)
    if _NO_MOMENT.search(message):
        return InvalidField(f"Invalid value for '{name}': it must be {MOMENT_IN_WORDS}.", param=name)
    message = shortened(_TYPES.sub(_as_json_says, message))
    return InvalidField(f"Invalid value for '{name}': {message[0].lower()}{message[1:]}.", param=name)


def _as_json_says(types: re.Match[str]) -> str:
    """JSON's names for types; msgspec uses Python's."""
    names = types.group(1).split(" | ")
    return " or ".join(_JSON_NAMES.get(name, name) for name in names)


def refused_field(
    name: str, kind: type, unsupported: Collection[str], not_part: str, advice: Mapping[str, str]
) -> RequestError:
    """The error for a field at the body's top that was moved and is refused later; see `validation_error`."""
    return _unknown_field(name, "", kind, unsupported, not_part, advice)


def _unknown_field(
    name: str, path: str, kind: type, unsupported: Collection[str], not_part: str, advice: Mapping[str, str]
) -> RequestError:
    # shorten first: the search for the nearest name is slow for a long one
    name = shortened(name)
    full = f"{path}.{name}" if path else name
    if not path and name in unsupported:
        instead = f"; {advice[name]}" if name in advice else "."
        return UnsupportedField(
            f"Unsupported parameter: '{name}' is not available on this deployment{instead}", param=name
        )
    if not path and name in advice:
        return UnknownField(f"Unknown parameter: '{name}' is not accepted here; {advice[name]}", param=name)
    known = [] if path else [field.name for field in msgspec.structs.fields(kind)]
    nearest = difflib.get_close_matches(name, known, 1, _ALIKE)
    hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
    return UnknownField(f"Unknown parameter: '{full}' {not_part}{hint}", param=full)
