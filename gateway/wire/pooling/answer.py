"""Reads the vectors or scores of any engine, and checks that they answer the request.

A vector stays undecoded if the engine wrote it in the requested form: a response may have millions of numbers.
"""

from __future__ import annotations

import base64
import binascii
import sys
from array import array
from math import isfinite
from typing import Any

import msgspec

from contracts.errors import EngineFailed, SlipstreamError, UnsupportedField
from contracts.pooling import EmbeddingWork, ScoringWork
from contracts.usage import Usage
from engines.drivers.engine_json import decode_engine_json
from gateway.wire.format import Transcoder
from gateway.wire.usage_tracker import UsageTracker

MAX_BYTES = 1 << 27
"""Limit of an engine's body: 2,048 vectors of 3,072 numbers."""
UNREADABLE_ANSWER = "The engine's response has no readable vectors or scores."


class PooledAnswer(Transcoder):
    """Reads one JSON body. A subclass implements `finish`."""

    finished = False
    """Whether the client's answer has been written."""
    events = 0
    text_seen = False
    satisfied = False
    characters = None
    text = None
    error: SlipstreamError | None = None

    def __init__(self, usage: UsageTracker, prompt_tokens: int) -> None:
        """prompt_tokens: our own count, for an engine that reports none."""
        self._body = bytearray()
        self._tracker = usage
        self._prompt_tokens = prompt_tokens

    def cut(self) -> None:
        """Never called: nothing supersedes a request without output."""

    def feed(self, data: bytes) -> bytes:
        """Keep the engine's bytes. Raises EngineFailed for more than `MAX_BYTES`."""
        self._body += data
        if len(self._body) > MAX_BYTES:
            raise EngineFailed(f"The engine wrote more than {MAX_BYTES} bytes; send fewer inputs in one request.")
        return b""

    def _read(self, kind: Any) -> Any:
        """Decode the body and release it, because it may be large."""
        body, self._body = self._body, bytearray()
        return decode_engine_json(bytes(body), kind, UNREADABLE_ANSWER)

    def _usage(self, reported: object) -> dict[str, int]:
        """OpenAI's usage of a request without output. reported: the engine's usage, if it is an object."""
        tracker = self._tracker
        if isinstance(reported, dict) and reported.get("prompt_tokens"):
            tracker.chunk({"usage": reported})
        usage = tracker.total or Usage(self._prompt_tokens)
        tracker.tell(Usage(usage.prompt_tokens, cached_tokens=usage.cached_tokens))
        return {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}


class _Vector(msgspec.Struct):
    embedding: msgspec.Raw
    index: int


class _Vectors(msgspec.Struct):
    data: list[_Vector]
    usage: Any = None


class EmbeddingAnswer(PooledAnswer):
    """OpenAI's list of vectors."""

    def __init__(self, work: EmbeddingWork, model: str, usage: UsageTracker, prompt_tokens: int) -> None:
        super().__init__(usage, prompt_tokens)
        self._work = work
        self._model = model

    def finish(self) -> bytes:
        """Raises EngineFailed if an input has no vector, UnsupportedField for vectors of another length."""
        read: _Vectors = self._read(_Vectors)
        by_index = {vector.index: bytes(vector.embedding) for vector in read.data}
        expected = len(self._work.inputs)
        if by_index.keys() != set(range(expected)) or len(read.data) != expected:
            raise EngineFailed(f"The engine returned {len(read.data)} vectors for {expected} inputs.", retry_after_s=1)
        vectors = [by_index[index] for index in range(expected)]
        if self._work.dimensions is not None and any(_length(vector) != self._work.dimensions for vector in vectors):
            raise UnsupportedField(
                f"This model's vectors have {_length(vectors[0])} numbers, not {self._work.dimensions}; leave "
                "'dimensions' out.",
                param="dimensions",
            )
        encode = _as_base64 if self._work.encoding_format == "base64" else _as_list
        data = [
            {"object": "embedding", "index": index, "embedding": msgspec.Raw(encode(vector))}
            for index, vector in enumerate(vectors)
        ]
        answer = {"object": "list", "data": data, "model": self._model, "usage": self._usage(read.usage)}
        self.finished = True
        return msgspec.json.encode(answer)


class _Scored(msgspec.Struct):
    index: int
    score: float | None = None
    relevance_score: float | None = None
    meta_info: Any = None


class _Scores(msgspec.Struct):
    data: list[_Scored] | None = None
    results: list[_Scored] | None = None
    usage: Any = None


class ScoresRead(msgspec.Struct, frozen=True):
    """Scores by pair, and the usage for the client."""

    scores: list[float]
    usage: dict[str, int]


class ScoringAnswer(PooledAnswer):
    """Scores of pairs, from vLLM's list, Jina's results or SGLang's array."""

    def __init__(self, work: ScoringWork, usage: UsageTracker, prompt_tokens: int) -> None:
        super().__init__(usage, prompt_tokens)
        self._pairs = len(work.documents)

    def scores(self) -> ScoresRead:
        """Raises EngineFailed if a pair has no finite score."""
        read: _Scores | list[_Scored] = self._read(_Scores | list[_Scored])
        if isinstance(read, list):
            scored, usage = read, _usage_of_parts(read)
        else:
            scored, usage = read.data or read.results or [], read.usage
        by_index = {entry.index: entry.score if entry.score is not None else entry.relevance_score for entry in scored}
        found = [by_index.get(index) for index in range(self._pairs)]
        scores = [entry for entry in found if entry is not None and isfinite(entry)]
        if len(scores) != self._pairs or len(scored) != self._pairs:
            raise EngineFailed(f"The engine returned {len(scores)} scores for {self._pairs} pairs.", retry_after_s=1)
        return ScoresRead(scores, self._usage(usage))


def _usage_of_parts(scored: list[_Scored]) -> dict[str, int]:
    """The usage of SGLang's array, which has the tokens of each pair."""
    parts = [one.meta_info.get("prompt_tokens") for one in scored if isinstance(one.meta_info, dict)]
    return {"prompt_tokens": sum(one for one in parts if isinstance(one, int))}


def _length(vector: bytes) -> int:
    """Number of a vector's entries."""
    return len(_numbers(vector) if vector.startswith(b'"') else _floats(vector))


def _as_list(vector: bytes) -> bytes:
    if vector.startswith(b'"'):
        return msgspec.json.encode(_numbers(vector).tolist())
    _floats(vector)
    return vector


def _as_base64(vector: bytes) -> bytes:
    if vector.startswith(b'"'):
        return vector
    numbers = array("f", _floats(vector))
    if sys.byteorder == "big":
        numbers.byteswap()
    return b'"' + base64.b64encode(numbers.tobytes()) + b'"'


def _floats(vector: bytes) -> list[float]:
    """The numbers of a JSON array."""
    return decode_engine_json(vector, list[float], UNREADABLE_ANSWER)


def _numbers(vector: bytes) -> array[float]:
    """The numbers of a JSON string in base64."""
    try:
        data = base64.b64decode(vector[1:-1].replace(b"\\/", b"/"), validate=True)
        numbers = array("f", data)
    except (binascii.Error, ValueError):
        raise EngineFailed(UNREADABLE_ANSWER) from None
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
