"""What answers in SGLang's form of the OpenAI format have in common, chat and completions, chunks and whole bodies.

A chunk is put together from parts encoded once per stream: encoding a whole object per token costs four times as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from engines.embedded.history import RequestUsage
from engines.embedded.output import Delta, Finish, TokenLogprob

DONE = b"data: [DONE]\n\n"
encode = msgspec.json.encode


class Format(Protocol):
    """One endpoint's answers to one request."""

    def chunk(self, delta: Delta, usage: bytes) -> bytes:
        """The events of one delta. usage: encoded JSON, `null` unless every event shall carry it."""
        ...

    def usage_chunk(self, usage: bytes) -> bytes:
        """The event after all choices ended."""
        ...

    def extension_chunk(self, extension: bytes) -> bytes:
        """The event before it, with what SGLang tells beyond OpenAI's fields."""
        ...

    def whole(self, choices: Sequence[Sequence[Delta]], usage: RequestUsage, *, extended: bool) -> bytes:
        """The body of an answer that is not streamed; choices: the deltas of each. extended: with what
        `extension_chunk` tells."""
        ...


def head(rid: str, kind: str, created: int, model: str) -> bytes:
    """An event up to its choices, left open. created: seconds since 1970."""
    fields = encode({"id": rid, "object": kind, "created": created, "model": model})
    return b"data: " + fields[:-1] + b',"choices":['


def extension_fields(usage: RequestUsage, *, extended: bool) -> dict[str, Any]:
    """SGLang's `sglext` member of a whole answer, where it was asked for and there is one."""
    extension = usage.extension() if extended else None
    return {"sglext": extension} if extension is not None else {}


def text_of(deltas: Sequence[Delta]) -> str:
    """The whole text of a choice."""
    return "".join(delta.text for delta in deltas)


def logprobs_of(deltas: Sequence[Delta]) -> list[TokenLogprob]:
    """All its log probabilities."""
    return [entry for delta in deltas for entry in delta.logprobs]


def finish_fields(finish: Finish | None) -> dict[str, Any]:
    """Both are null while it goes on."""
    return {
        "finish_reason": finish.reason if finish else None,
        "matched_stop": finish.matched if finish else None,
    }
