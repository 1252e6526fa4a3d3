"""A request's path, query and body as the values a handler takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from contracts.errors import InvalidField, InvalidJson, NotFound
from gateway.admin.endpoint import Endpoint
from gateway.wire.decode import decode, validation_error


class Arguments:
    """Decodes for one endpoint. Making it compiles the decoder of its body."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._body: msgspec.json.Decoder[Any] | None = (
            msgspec.json.Decoder(endpoint.body) if endpoint.body is not None else None
        )
        self._lists = _list_fields(endpoint.query)

    def of(
        self, path: Mapping[str, str], query: list[tuple[str, str]], body: bytes, content_type: str
    ) -> dict[str, Any]:
        """Keyword arguments for the handler. Raises a RequestError that names the field."""
        arguments: dict[str, Any] = {
            name: _path_value(name, kind, path[name]) for name, kind in self._endpoint.parameters.items()
        }
        if self._endpoint.query is not None:
            arguments["query"] = self._query(self._endpoint.query, query)
        elif query:
            raise validation_error(f"Object contains unknown field `{query[0][0]}`", msgspec.Struct)
        if self._body is not None and self._endpoint.body is not None:
            if content_type and content_type.partition(";")[0].strip().lower() != "application/json":
                raise InvalidJson(f"The body must be sent as application/json, not as {content_type[:100]!r}.")
            arguments["body"] = decode(self._body, body, self._endpoint.body)
            _refuse_zero_bytes(msgspec.to_builtins(arguments["body"]), "")
        return arguments

    def _query(self, kind: type, pairs: list[tuple[str, str]]) -> Any:
        values: dict[str, Any] = {}
        for name, text in pairs:
            if not _storable(text):
                raise InvalidField(f"Invalid value for '{name}': it is not text.", param=name)
            if name in self._lists:
                values.setdefault(name, []).append(text)
            elif name in values:
                raise InvalidField(f"Invalid value for '{name}': it is given twice.", param=name)
            else:
                values[name] = text
        try:
            query: Any = msgspec.convert(values, kind, strict=False)
        except msgspec.ValidationError as error:
            raise validation_error(str(error), kind) from None
        for name in values:
            if (
                getattr(query, name) is None
            ):  # msgspec reads the text `null` so; a parameter is left out by leaving it out
                raise InvalidField(f"Invalid value for '{name}': null is none; leave the parameter out.", param=name)
        return query


def _path_value(name: str, kind: type, text: str) -> object:
    if kind is not UUID:
        if not _storable(text):
            raise NotFound(f"There is no such {name.removesuffix('_id').replace('_', ' ')}.")
        return text
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"There is no {name.removesuffix('_id').replace('_', ' ')} {text!r}: ids are UUIDs.") from None


def _storable(text: str) -> bool:
    """Whether PostgreSQL's text can hold it."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _list_fields(kind: type | None) -> frozenset[str]:
    if kind is None:
        return frozenset()
    return frozenset(name for name, hint in kind.__annotations__.items() if "list[" in str(hint))


def _refuse_zero_bytes(value: object, path: str) -> None:
    """PostgreSQL's text cannot hold one; free-form objects are not covered by a pattern."""
    match value:
        case str() if "\0" in value:
            raise InvalidField(f"Invalid value for '{path}': it holds a zero byte.", param=path)
        case dict():
            for name, item in value.items():
                _refuse_zero_bytes(name, path)
                _refuse_zero_bytes(item, f"{path}.{name}" if path else str(name))
        case list():
            for number, item in enumerate(value):
                _refuse_zero_bytes(item, f"{path}[{number}]")
        case _:
            return
