"""Defines the scopes of an inference key."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """One of the doors of the inference API. A key without a list of scopes opens all but `evals`."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    """Vectors and scores: `/v1/embeddings`, `/v1/rerank` and `/v1/score`."""
    MODELS = "models"
    EVALS = "evals"
    """The deployment's own requests, on any pool, at the lowest priority and unbilled; only keys of its internal
    organization have it."""
