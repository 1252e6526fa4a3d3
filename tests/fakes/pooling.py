"""Vectors and scores of the fake engine: a vector is a text's length, then its first bytes; a score is the number of
words that two texts share."""

from __future__ import annotations

import base64
from array import array
from typing import Any

from tests.fakes.script import Script

POOLING_PATHS = ("/v1/embeddings", "/v1/rerank", "/v1/score")
WIDTH = 8


def vector(value: str | list[int]) -> list[float]:
    """The vector of a text or of token ids."""
    data = value.encode() if isinstance(value, str) else bytes(number % 256 for number in value)
    return [float(len(data)), *(byte / 256 for byte in data[: WIDTH - 1].ljust(WIDTH - 1, b"\0"))]


def pooled(path: str, body: dict[str, Any], script: Script) -> tuple[Any, int]:
    """The engine's answer, and its prompt tokens."""
    if path == "/v1/embeddings":
        return _vectors(body, script)
    if path == "/v1/score":
        queries, documents = (_listed(body[name]) for name in ("text_1", "text_2"))
        queries *= len(documents) // len(queries)
    else:
        documents = body["documents"]
        queries = [body["query"]] * len(documents)
    pairs = list(zip(queries, documents, strict=True))
    scores = [float(len(set(one.split()) & set(other.split()))) for one, other in pairs]
    tokens = [script.prompt_tokens or len(one.split()) + len(other.split()) for one, other in pairs]
    if script.flat:
        parts = [
            {"index": at, "score": score, "document": documents[at], "meta_info": {"prompt_tokens": tokens[at]}}
            for at, score in enumerate(scores)
        ]
        return sorted(parts, key=lambda part: -part["score"]), sum(tokens)
    name, field = ("data", "score") if path == "/v1/score" else ("results", "relevance_score")
    listed = [{"index": at, field: score} for at, score in enumerate(scores)]
    return {"model": "fake", name: listed, **_usage(sum(tokens), script)}, sum(tokens)


def _vectors(body: dict[str, Any], script: Script) -> tuple[Any, int]:
    given = body["input"]
    inputs = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    tokens = script.prompt_tokens or sum(len(one) for one in inputs)
    vectors = [vector(one)[: body.get("dimensions")] for one in inputs[script.dropped_vectors :]]
    base64_wanted = (script.encoding or body.get("encoding_format")) == "base64"
    data = [
        {
            "object": "embedding",
            "index": at,
            "embedding": base64.b64encode(array("f", one).tobytes()).decode() if base64_wanted else one,
        }
        for at, one in enumerate(vectors)
    ]
    return {"object": "list", "data": data, "model": "fake", **_usage(tokens, script)}, tokens


def _usage(tokens: int, script: Script) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}} if script.usage else {}


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
