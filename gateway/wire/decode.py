"""Client bytes to typed structs, with errors that name the field."""

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
"""Below it two names are as often two things: `min_tokens`, `max_tokens`."""
_ANY_KEY = "[...]"
MAX_MOVED = 64
"""Fields that `decode` moves."""
_MAX_KEYS = 1_000
"""Keys of a map that are searched for the invalid one."""
_NO_NAME = re.compile(r"[`.\[\]\s]")
"""Characters that would end a key within a path."""
_NO_ADVICE: Mapping[str, str] = MappingProxyType({})
NULL_IS_ABSENCE: Mapping[str, Collection[bytes]] = MappingProxyType({})
"""For `decode`: null alone means absence."""
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_messages = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_NULL = msgspec.Raw(b"null")
RequestT = TypeVar("RequestT")

_MAX_READ = MAX_QUOTED + 100
"""Characters of a message that patterns read: the quotation of a client, and msgspec's words around it."""
_BYTE = re.compile(r"\(byte (\d+)\)")
_NO_CHOICE = re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)
_TYPES = re.compile(r"`([^`]*)`")
_NO_MOMENT = re.compile(r"^Invalid RFC3339|^Expected `datetime|timezone component")
MOMENT_IN_WORDS = "a moment with its offset from UTC, such as 2026-11-22T09:30:00Z"
_JSON_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


class Others(NamedTuple):
    """Destination of fields that a struct lacks."""

    field: str
    """A map of undecoded values."""
    takes: Callable[[str], bool]
    """Whether it may have a field of this name; any other is refused at once."""


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
    """The body as the struct the decoder was made for. unsupported, not_part, advice: see `validation_error`.
    without_effect: null is absence in this body; by name, the other JSON values with which a field that the struct
    lacks has no effect. None: null is a value, as in a change of the admin API, and an unknown name with it is refused.
    others: where fields that the struct lacks go; None: they are refused.

    Raises a RequestError that names the field.
    """
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:  # the body after the field is not read yet
            refusal = validation_error(_with_key(str(error), body, kind), kind, unsupported, not_part, advice)
        if without_effect is None or not isinstance(refusal, UnknownField | UnsupportedField):
            raise refusal
        known = _names(kind)
        asked = _asked(body, known, without_effect)
        if others is not None:
            _move_unknown(asked, known, others)
        if (unknown := next((name for name in asked if name not in known), None)) is not None:
            # at once: to read a large body again would hold the loop for as long as the first time
            raise _unknown_field(unknown, "", kind, unsupported, not_part, advice)
        try:
            return decoder.decode(msgspec.json.encode(asked))
        except msgspec.ValidationError as error:
            # here: another clause of the `try` below would not see what the search for the key raises
            raise validation_error(_with_key(str(error), body, kind), kind, unsupported, not_part, advice) from None
    except msgspec.ValidationError as error:
        raise validation_error(str(error), kind, unsupported, not_part, advice) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _syntax_error(error, body) from None
    except RecursionError:
        raise InvalidJson("The body is nested too deeply.") from None


def _move_unknown(asked: dict[str, msgspec.Raw], known: Collection[str], others: Others) -> None:
    """Move the fields that are not known, if all of them may be and there are not many."""
    unknown = [name for name in asked if name not in known]
    if not unknown or len(unknown) > MAX_MOVED or not all(map(others.takes, unknown)):
        return
    given = asked.get(others.field, _NULL)
    moved = {} if given == _NULL else _decode_fields(given)
    for name in unknown:
        moved[name] = asked.pop(name)
    asked[others.field] = msgspec.Raw(msgspec.json.encode(moved))


def _asked(
    body: bytes, known: Collection[str], without_effect: Mapping[str, Collection[bytes]]
) -> dict[str, msgspec.Raw]:
    """The body's fields, undecoded, without unknown ones that have no effect: null means absence, and clients with
    typed bodies write all the fields they know, at the body's top and in messages."""
    fields = {
        name: value
        for name, value in _decode_fields(body).items()
        if name in known or bytes(value).strip() not in (b"null", *without_effect.get(name, ()))
    }
    messages = bytes(fields.get("messages", b"")).lstrip()
    if messages.startswith(b"[") and b"null" in messages:
        fields["messages"] = _without_nulls(fields["messages"])
    return fields


def _names(kind: type) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind))


def _without_nulls(messages: msgspec.Raw) -> msgspec.Raw:
    """Remove fields that are null, in one pass: a body may have thousands of small messages."""
    try:
        given = _decode_messages(messages)
    except msgspec.ValidationError:
        return messages  # one is not an object: the body's own decoder names its number
    kept = [{name: value for name, value in one.items() if value != _NULL or name == "content"} for one in given]
    return msgspec.Raw(msgspec.json.encode(kept))


def _with_key(text: str, body: bytes, kind: type) -> str:
    """msgspec's message, with the key of a map at the top of the body, which msgspec omits: `metadata.a`."""
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
    """`JSON is malformed: … (byte 17)` with the line and column a person looks for."""
    if not body:
        return InvalidJson("The body is empty; a JSON object is expected.")
    text, position = str(error), len(body)
    if isinstance(error, UnicodeDecodeError):  # it counts from the beginning of one string
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
    """msgspec's error as ours. kind: the decoded struct. unsupported: fields of the API that this deployment lacks.
    not_part: the phrase for all others that the struct lacks. advice: by name, for either."""
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
        given = shortened(value.group(1))
        return InvalidField(f"Invalid value for '{name}': {given}. It must be {one}{', '.join(allowed)}.", param=name)
    if "matching regex" in message and (wanted := pattern_in_words(kind, path)):
        return InvalidField(f"Invalid value for '{name}': it must be {wanted}.", param=name)
    if _NO_MOMENT.search(message):
        return InvalidField(f"Invalid value for '{name}': it must be {MOMENT_IN_WORDS}.", param=name)
    message = shortened(_TYPES.sub(_as_json_says, message))
    return InvalidField(f"Invalid value for '{name}': {message[0].lower()}{message[1:]}.", param=name)


def _as_json_says(types: re.Match[str]) -> str:
    """msgspec names types as Python does."""
    names = types.group(1).split(" | ")
    return " or ".join(_JSON_NAMES.get(name, name) for name in names)


def refused_field(
    name: str, kind: type, unsupported: Collection[str], not_part: str, advice: Mapping[str, str]
) -> RequestError:
    """The error for a moved field at the body's top that is refused after all; see `validation_error`."""
    return _unknown_field(name, "", kind, unsupported, not_part, advice)


def _unknown_field(
    name: str, path: str, kind: type, unsupported: Collection[str], not_part: str, advice: Mapping[str, str]
) -> RequestError:
    # before anything is compared with it: looking for the nearest name is slow for a long one
    name = shortened(name)
    full = f"{path}.{name}" if path else name
    if not path and name in unsupported:
        instead = f"; {advice[name]}" if name in advice else "."
        return UnsupportedField(
            f"Unsupported parameter: '{name}' is not available on this deployment{instead}", param=name
        )
    if not path and name in advice:
        return UnknownField(f"Unknown parameter: '{name}' is not taken here; {advice[name]}", param=name)
    known = [] if path else [field.name for field in msgspec.structs.fields(kind)]
    nearest = difflib.get_close_matches(name, known, 1, _ALIKE)
    hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
    return UnknownField(f"Unknown parameter: '{full}' {not_part}{hint}", param=full)
