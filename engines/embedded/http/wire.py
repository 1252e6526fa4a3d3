"""The common part of responses in SGLang's variant of the OpenAI format, for chat and completions, streamed or whole.

A chunk is joined from parts that are encoded once per stream. Encoding a whole object per token would cost four times
as much.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from engines.embedded.history import RequestUsage
from engines.embedded.output import Delta, Finish, TokenLogprob
from engines.embedded.request import Request

DONE = b"data: [DONE]\n\n"
encode = msgspec.json.encode


class Format(ABC):
    """An endpoint's responses to one request. object_, chunk: OpenAI's names of a whole response and of a chunk."""

    def __init__(self, request: Request, model: str, object_: str, chunk: str) -> None:
        self._object = object_
        self._rid, self._model, self._created = request.rid, model, int(time.time())
        fields = encode({"id": self._rid, "object": chunk, "created": self._created, "model": model})
        self._head = b"data: " + fields[:-1] + b',"choices":['
        """The beginning of an event, up to its first choice."""

    @abstractmethod
    def chunk(self, delta: Delta, usage: bytes) -> bytes:
        """The events of one delta. usage: encoded JSON, `null` unless every event carries it."""

    @abstractmethod
    def choices(self, choices: Sequence[Sequence[Delta]]) -> list[dict[str, Any]]:
        """The choices of an unstreamed response, from the deltas of each."""

    def usage_chunk(self, usage: bytes) -> bytes:
        """The event after all choices ended, with usage and no choice."""
        return b'%b],"usage":%b}\n\n' % (self._head, usage)

    def extension_chunk(self, extension: bytes) -> bytes:
        """The event before `usage_chunk`'s, with SGLang's additions to OpenAI's fields."""
        return b'%b],"sglext":%b}\n\n' % (self._head, extension)

    def whole(self, choices: Sequence[Sequence[Delta]], usage: RequestUsage, *, extended: bool = False) -> bytes:
        """The body of an unstreamed response. extended: with the fields of `extension_chunk`."""
        body = {
            "id": self._rid,
            "object": self._object,
            "created": self._created,
            "model": self._model,
            "choices": self.choices(choices),
            "usage": usage.wire(),
        }
        extension = usage.extension() if extended else None
        return encode(body if extension is None else {**body, "sglext": extension})


def text_of(deltas: Sequence[Delta]) -> str:
    """The whole text of a choice."""
    return "".join(delta.text for delta in deltas)


def logprobs_of(deltas: Sequence[Delta]) -> list[TokenLogprob]:
    """All log probabilities of a choice."""
    return [entry for delta in deltas for entry in delta.logprobs]


def finish_fields(finish: Finish | None) -> dict[str, Any]:
    """The fields of a choice's finish, null until the choice ends."""
    return {"finish_reason": finish.reason if finish else None, "matched_stop": finish.matched if finish else None}


def ending(finish: Finish | None, usage: bytes) -> bytes:
    """The end of a chunk, beginning with the finish of its choice. usage: encoded JSON."""
    reason, matched = map(encode, finish_fields(finish).values())
    return b'"finish_reason":%b,"matched_stop":%b}],"usage":%b}\n\n' % (reason, matched, usage)
