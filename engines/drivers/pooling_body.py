"""The part of a request for vectors or scores that all engines with such endpoints understand."""

from __future__ import annotations

from contracts.errors import UnsupportedField
from contracts.pooling import EmbeddingWork, PoolingWork, ScoringWork
from engines.drivers.openai_body import JsonObject

EMBEDDINGS_PATH, RERANK_PATH, SCORE_PATH = "/v1/embeddings", "/v1/rerank", "/v1/score"


def pooling_body(work: PoolingWork, engine_model: str) -> tuple[str, JsonObject]:
    """Path and body: OpenAI's for vectors, Jina's for scores. Raises UnsupportedField for several queries."""
    if isinstance(work, EmbeddingWork):
        return EMBEDDINGS_PATH, embedding_body(work, engine_model)
    return RERANK_PATH, rerank_body(work, engine_model)


def embedding_body(work: EmbeddingWork, engine_model: str) -> JsonObject:
    """The body of an embeddings request. A single text is sent without a list, because some servers take no list."""
    inputs = work.inputs
    body: JsonObject = {"model": engine_model, "input": inputs[0] if len(inputs) == 1 else inputs}
    if work.encoding_format != "float":
        body["encoding_format"] = work.encoding_format
    if work.dimensions is not None:
        body["dimensions"] = work.dimensions
    return body


def rerank_body(work: ScoringWork, engine_model: str) -> JsonObject:
    """The body of a rerank request. The engine scores all documents; the gateway keeps the best."""
    if len(work.queries) > 1:
        raise UnsupportedField(
            f"This engine compares one text with others, not {len(work.queries)} texts with as many: give 'text_1' as "
            "one text.",
            param="text_1",
        )
    return {"model": engine_model, "query": work.queries[0], "documents": work.documents}
