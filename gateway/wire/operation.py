"""An endpoint of any API, as OpenAPI documents it. If two APIs share a path, each has its own operation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from gateway.wire.errors import ErrorBody

JsonObject = dict[str, Any]
TEMPLATE = "#/components/schemas/{name}"
"""The form of references to schemas."""
ANY_KEY: list[dict[str, list[str]]] = [{"key": []}, {"key_header": []}]
"""A key in either header."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A POST operation that generates text, counts it, or computes vectors or scores of it."""

    path: str
    """`{name}` is a segment that the client chooses."""
    name: str
    """Unique name of the operation."""
    summary: str
    body: type
    """The struct that decodes the request: its schema is the documented one."""
    answer: Any
    """The shape of an unstreamed response."""
    error: type = ErrorBody
    """The shape of a refusal."""
    refusals: Mapping[int, str] = MappingProxyType({})
    """Statuses that no other API has, with their meaning."""
    streamed: bool = True
    """Whether the response may be a stream of events."""


def operation(
    name: str,
    summary: str,
    error: JsonObject,
    refusals: Mapping[int, str],
    answer: JsonObject | None = None,
    *,
    status: int = 200,
    done: str = "Done.",
) -> JsonObject:
    """A method of a path. error, answer: schemas; answer is None for an empty response."""
    content = {} if answer is None else json_of(answer)
    responses = {str(status): {"description": done, **content}, **refused(error, refusals)}
    return {"operationId": name, "summary": summary, "responses": responses}


def refused(error: JsonObject, refusals: Mapping[int, str]) -> JsonObject:
    """The responses that refuse a request."""
    return {str(status): {"description": text, **json_of(error)} for status, text in refusals.items()}


def json_of(schema: JsonObject) -> JsonObject:
    """A body or a response as JSON."""
    return {"content": {"application/json": {"schema": schema}}}


def body_of(schema: JsonObject) -> JsonObject:
    """A required JSON body."""
    return {"required": True, **json_of(schema)}
