"""Work whose response is numbers instead of text: vectors of texts, or scores of pairs of texts. An engine computes the
prompts and generates nothing."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

EncodingFormat = Literal["float", "base64"]


class Task(StrEnum):
    """What a model is for, and so the endpoints that serve it."""

    TEXT = "text"
    EMBEDDING = "embedding"
    RERANK = "rerank"

    @property
    def paths(self) -> str:
        """The endpoints that serve this task, for errors."""
        return _PATHS[self]


_PATHS = {
    Task.TEXT: "/v1/chat/completions, /v1/completions, /v1/responses or /v1/messages",
    Task.EMBEDDING: "/v1/embeddings",
    Task.RERANK: "/v1/rerank or /v1/score",
}


class EmbeddingWork(msgspec.Struct, frozen=True):
    """Texts to embed."""

    inputs: tuple[str | tuple[int, ...], ...]
    """All texts, or all token ids."""
    encoding_format: EncodingFormat = "float"
    dimensions: int | None = None
    """Length of the vectors; None for the model's own."""


class ScoringWork(msgspec.Struct, frozen=True):
    """Pairs of texts to score."""

    queries: tuple[str, ...]
    """One for all documents, or one for each."""
    documents: tuple[str, ...]


PoolingWork = EmbeddingWork | ScoringWork
