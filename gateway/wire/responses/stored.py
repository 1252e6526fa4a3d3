"""The stored form of a response: the request's own items as JSON, each with an id, and the response object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from contracts.errors import InvalidField
from contracts.request_id import RESPONSE_PREFIX
from gateway.wire.openai.tool_calls import is_object, wrapped
from gateway.wire.responses.schema import (
    CustomToolCallItem,
    CustomToolCallOutputItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputText,
    Item,
    ItemReference,
    MessageItem,
    OutputText,
    ReasoningItem,
)

_PREFIXES: dict[type, str] = {
    MessageItem: "msg",
    FunctionCallItem: "fc",
    FunctionCallOutputItem: "fco",
    CustomToolCallItem: "ctc",
    CustomToolCallOutputItem: "cto",
    ReasoningItem: "rs",
}


class _Named(msgspec.Struct):
    id: str


class _RawOutput(msgspec.Struct):
    output: list[msgspec.Raw]


class _WholeOutput(msgspec.Struct):
    output: msgspec.Raw


class _Kind(msgspec.Struct):
    background: bool


class _Output(msgspec.Struct):
    output: list[Item]


_decode_items = msgspec.json.Decoder(list[Item]).decode
_decode_item: Callable[[bytes], Item] = msgspec.json.Decoder(Item).decode
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_raw_output = msgspec.json.Decoder(_RawOutput).decode
_decode_whole_output = msgspec.json.Decoder(_WholeOutput).decode
_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_named = msgspec.json.Decoder(_Named).decode
_decode_output = msgspec.json.Decoder(_Output).decode


def input_json(items: Sequence[Item], response_id: str) -> bytes:
    """The items for the store, in the form in which clients read them: each with an id and a status, and messages in
    parts. Raises InvalidField for an id that cannot be stored."""
    key = response_id.removeprefix(RESPONSE_PREFIX)
    for item in items:
        if "\0" in (item.id or ""):  # otherwise, the store would refuse it after the generation
            raise InvalidField("The id of an item has a NUL character; leave the id out.", param="input")
    return msgspec.json.encode([_listed(item, f"{key}_i{number}") for number, item in enumerate(items)])


def _listed(item: Item, key: str) -> Item:
    if isinstance(item, ItemReference):
        return item
    item = replace(item, id=item.id or f"{_PREFIXES[type(item)]}_{key}", status=item.status or "completed")
    if isinstance(item, MessageItem) and isinstance(item.content, str):
        text = item.content
        part = OutputText(text=text, annotations=[]) if item.role == "assistant" else InputText(text=text)
        return replace(item, content=[part])
    return item


def items_in(stored_input: bytes, response: bytes) -> list[Item]:
    """The items of a stored response, its input before its output."""
    return [_called(item) for item in (*_decode_items(stored_input), *_decode_output(response).output)]


def output_in(response: bytes) -> bytes:
    """The output of a stored response, as JSON."""
    return bytes(_decode_whole_output(response).output)


def item_in(stored: bytes) -> Item:
    """An item of a conversation."""
    return _called(_decode_item(stored))


def _called(item: Item) -> Item:
    """The item. Arguments that were cut, or that the model wrote wrongly, are in an object: engines take nothing else,
    and no client can correct a stored item."""
    if not isinstance(item, FunctionCallItem) or item.arguments.strip() in ("", "null") or is_object(item.arguments):
        return item
    return replace(item, arguments=wrapped(item.arguments).decode())


def identified(stored_input: bytes, response: bytes | None = None) -> list[tuple[str, bytes]]:
    """Each item's id and JSON: first the items of a stored input, then those of the response's output."""
    raws = _decode_raws(stored_input) + ([] if response is None else _decode_raw_output(response).output)
    return [(_decode_named(raw).id, bytes(raw)) for raw in raws]


def with_fields(response: bytes, fields: Mapping[str, Any]) -> bytes:
    """A stored response with these fields changed."""
    return msgspec.json.encode({**_decode_fields(response), **fields})


def cancelled(response: bytes) -> bytes:
    """A background response that was cancelled before it had output."""
    return with_fields(response, {"status": "cancelled"})


def is_background(response: bytes) -> bool:
    """Whether a stored response was created with `background`."""
    return _decode_kind(response).background


def response_of(reference: ItemReference) -> str:
    """The id of the response to which an item with an id of ours belongs; for any other id, one that does not exist."""
    return RESPONSE_PREFIX + reference.id.partition("_")[2].partition("_")[0]
