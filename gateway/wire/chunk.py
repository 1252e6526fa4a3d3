"""Reads an engine's events, which are OpenAI's chunks whichever format the client speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from contracts.errors import EngineFailed, SlipstreamError
from engines.drivers.error_bodies import event_error

ReadError = Callable[[int, bytes], SlipstreamError]
"""An engine's error by status and body, as `Driver.error` reads it."""


def decoded(payload: bytes) -> dict[str, Any]:
    """An event's JSON object. Raises EngineFailed when it is none."""
    try:
        chunk = msgspec.json.decode(payload)
    except msgspec.DecodeError:
        raise EngineFailed("The engine sent an event that is not JSON.") from None
    if not isinstance(chunk, dict):
        raise EngineFailed("The engine sent an event that is not an object.")
    return chunk


def error_in(chunk: dict[str, Any], read: ReadError) -> SlipstreamError | None:
    """The error an engine reports inside a stream, without its internals. read: the dialect's `Driver.error`."""
    if chunk.get("error") or chunk.get("object") == "error":
        return event_error(msgspec.json.encode(chunk), read)
    return None


def has_text(chunk: dict[str, Any]) -> bool:
    """Whether an event carries anything the model generated, as opposed to only a role or a finish."""
    for choice in chunk.get("choices") or ():
        if choice.get("text"):
            return True
        delta = choice.get("delta") or {}
        if delta.get("content") or delta.get("tool_calls") or delta.get("reasoning_content") or delta.get("refusal"):
            return True
    return False


def texts_of(chunk: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """(choice, what the model wrote) for every choice that an event lets grow: text, reasoning, refusal, calls."""
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        text = "".join(
            str(part)
            for part in (choice.get("text"), delta.get("reasoning_content"), delta.get("content"), delta.get("refusal"))
            if part
        )
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            text += f"{function.get('name') or ''}{function.get('arguments') or ''}"
        if text:
            yield int(choice.get("index") or 0), text
