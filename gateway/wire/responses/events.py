"""Writes and reads the events of a response's stream, and makes them from a stored response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

BLANK = b"\n\n"
"""The end of each event."""
_decode: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class Event(msgspec.Struct):
    """The parts of an event that are read again. response: JSON; empty if the event has none."""

    type: str
    sequence_number: int
    response: msgspec.Raw = msgspec.Raw()


_decode_event = msgspec.json.Decoder(Event).decode


def event_of(kind: str, number: int, fields: Mapping[str, Any]) -> bytes:
    """An event as it is sent. number: the event's, in its stream."""
    event = msgspec.json.encode({"type": kind, "sequence_number": number, **fields})
    return b"".join((b"event: ", kind.encode(), b"\ndata: ", event, BLANK))


def error_of(code: str, message: str, number: int) -> bytes:
    """The event of an error that ends a stream but not its response."""
    return event_of("error", number, {"code": code, "message": message, "param": None})


def read(event: bytes) -> Event:
    """An event that `event_of` or `Answer` wrote, without its blank line."""
    return _decode_event(event.partition(b"\ndata: ")[2])


def events_after(position: int, first: int, events: bytes) -> bytes:
    """The events after `position`. first: the number of the first event."""
    return events if position < first else BLANK.join(events.split(BLANK)[position + 1 - first :])


def replayed(stored: bytes) -> Iterator[bytes]:
    """The events of a stored response that has finished, with each text in one delta."""
    response = _decode.decode(stored)
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "error": None}
    begun |= {"completed_at": None, "incomplete_details": None}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
    ]
    for index, item in enumerate(response["output"]):
        kinds += _of_item(item, {"output_index": index})
    kinds.append((f"response.{response['status']}", {"response": msgspec.Raw(stored)}))
    for number, (kind, fields) in enumerate(kinds):
        yield event_of(kind, number, fields)


def _of_item(item: dict[str, Any], place: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    where = {"item_id": item["id"], **place}
    empty = {"content": [], "arguments": "", "input": ""}
    added = {name: empty.get(name, value) for name, value in item.items() if name != "encrypted_content"}
    yield "response.output_item.added", {**place, "item": {**added, "status": "in_progress"}}
    match item["type"]:
        case "function_call":
            arguments = item["arguments"]
            yield "response.function_call_arguments.delta", {**where, "delta": arguments}
            yield "response.function_call_arguments.done", {**where, "name": item["name"], "arguments": arguments}
        case "custom_tool_call":
            yield "response.custom_tool_call_input.delta", {**where, "delta": item["input"]}
            yield "response.custom_tool_call_input.done", {**where, "input": item["input"]}
        case _:
            for number, part in enumerate(item["content"]):
                yield from _of_part(part, {**where, "content_index": number})
    yield "response.output_item.done", {**place, "item": item}


def _of_part(part: dict[str, Any], where: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind: str = part["type"]
    name = "refusal" if kind == "refusal" else "text"
    text = part[name]
    more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
    yield "response.content_part.added", {**where, "part": {**part, name: ""}}
    yield f"response.{kind}.delta", {**where, **more, "delta": text}
    yield f"response.{kind}.done", {**where, **more, name: text}
    yield "response.content_part.done", {**where, "part": part}
