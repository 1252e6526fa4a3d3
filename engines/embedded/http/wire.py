"""Answers in SGLang's form of the OpenAI format: chunks and whole bodies for chat and for completions.

A chunk is put together from parts encoded once per stream: encoding a whole object per token costs four times as much.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from engines.embedded.history import RequestUsage
from engines.embedded.output import Delta, TokenLogprob
from engines.embedded.request import Request
from engines.tokenizer.tokenizer import Tokenizer

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

    def whole(self, choices: Sequence[Sequence[Delta]], usage: RequestUsage) -> bytes:
        """The body of an answer that is not streamed; choices: the deltas of each."""
        ...


class ChatFormat:
    """chat.completion and its chunks."""

    def __init__(self, request: Request, model: str, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._rid, self._model, self._created = request.rid, model, int(time.time())
        self._head = _head(request.rid, "chat.completion.chunk", self._created, model)
        self._begun: set[int] = set()

    def chunk(self, delta: Delta, usage: bytes) -> bytes:
        """Role first, then text, then the end in a chunk of its own."""
        head = b'%b{"index":%d,"delta":{' % (self._head, delta.index)
        events: list[bytes] = []
        if delta.index not in self._begun:
            self._begun.add(delta.index)
            events.append(
                b'%b"role":"assistant","content":""},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":%b}\n\n'
                % (head, usage)
            )
        if delta.text or delta.logprobs:
            events.append(
                b'%b"content":%b},"logprobs":%b,"finish_reason":null,"matched_stop":null}],"usage":%b}\n\n'
                % (head, encode(delta.text), encode(_chat_logprobs(delta.logprobs, self._tokenizer)), usage)
            )
        if delta.finish is not None:
            reason, matched = encode(delta.finish.reason), encode(delta.finish.matched)
            events.append(
                b'%b},"logprobs":null,"finish_reason":%b,"matched_stop":%b}],"usage":%b}\n\n'
                % (head, reason, matched, usage)
            )
        return b"".join(events)

    def usage_chunk(self, usage: bytes) -> bytes:
        """No choices, only usage."""
        return b'%b],"usage":%b}\n\n' % (self._head, usage)

    def whole(self, choices: Sequence[Sequence[Delta]], usage: RequestUsage) -> bytes:
        """One message per choice."""
        return encode(
            {
                "id": self._rid,
                "object": "chat.completion",
                "created": self._created,
                "model": self._model,
                "choices": [
                    {
                        "index": index,
                        "message": {"role": "assistant", "content": _text(deltas)},
                        "logprobs": _chat_logprobs(_logprobs(deltas), self._tokenizer),
                        **_finish(deltas),
                    }
                    for index, deltas in enumerate(choices)
                ],
                "usage": usage.wire(),
            }
        )


class CompletionFormat:
    """text_completion, streamed or whole: a chunk has the same shape, and the end comes with the last text."""

    def __init__(self, request: Request, model: str, tokenizer: Tokenizer, echo: Sequence[str]) -> None:
        """echo: the text that goes before each choice, "" for none."""
        self._tokenizer = tokenizer
        self._rid, self._model, self._created = request.rid, model, int(time.time())
        self._head = _head(request.rid, "text_completion", self._created, model)
        self._echo = list(echo)
        self._offsets = [len(text) for text in echo]

    def chunk(self, delta: Delta, usage: bytes) -> bytes:
        """Text, with the finish in the last one."""
        text, self._echo[delta.index] = self._echo[delta.index] + delta.text, ""
        finish = delta.finish
        return b'%b{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b,"matched_stop":%b}],"usage":%b}\n\n' % (
            self._head,
            delta.index,
            encode(text),
            encode(self._logprobs(delta.index, delta.logprobs)),
            encode(finish.reason if finish else None),
            encode(finish.matched if finish else None),
            usage,
        )

    def usage_chunk(self, usage: bytes) -> bytes:
        """No choices, only usage."""
        return b'%b],"usage":%b}\n\n' % (self._head, usage)

    def whole(self, choices: Sequence[Sequence[Delta]], usage: RequestUsage) -> bytes:
        """One text per choice."""
        return encode(
            {
                "id": self._rid,
                "object": "text_completion",
                "created": self._created,
                "model": self._model,
                "choices": [
                    {
                        "index": index,
                        "text": self._echo[index] + _text(deltas),
                        "logprobs": self._logprobs(index, _logprobs(deltas)),
                        **_finish(deltas),
                    }
                    for index, deltas in enumerate(choices)
                ],
                "usage": usage.wire(),
            }
        )

    def _logprobs(self, index: int, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not entries:
            return None
        tokens = [self._tokenizer.token_text(entry.id) for entry in entries]
        offsets: list[int] = []
        for token in tokens:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [entry.logprob for entry in entries],
            "top_logprobs": [{self._tokenizer.token_text(id_): value for id_, value in entry.top} for entry in entries],
            "text_offset": offsets,
        }


def _head(rid: str, kind: str, created: int, model: str) -> bytes:
    # the JSON of everything before the choices, left open
    fields = encode({"id": rid, "object": kind, "created": created, "model": model})
    return b"data: " + fields[:-1] + b',"choices":['


def _text(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def _logprobs(deltas: Sequence[Delta]) -> list[TokenLogprob]:
    return [entry for delta in deltas for entry in delta.logprobs]


def _finish(deltas: Sequence[Delta]) -> dict[str, Any]:
    finish = deltas[-1].finish
    return {
        "finish_reason": finish.reason if finish else None,
        "matched_stop": finish.matched if finish else None,
    }


def _chat_logprobs(entries: Sequence[TokenLogprob], tokenizer: Tokenizer) -> dict[str, Any] | None:
    if not entries:
        return None

    def token(id_: int, logprob: float) -> dict[str, Any]:
        text = tokenizer.token_text(id_)
        return {"token": text, "bytes": list(text.encode()), "logprob": logprob}

    return {
        "content": [
            {**token(entry.id, entry.logprob), "top_logprobs": [token(*pair) for pair in entry.top]}
            for entry in entries
        ],
        "refusal": None,
    }
