"""OpenAPI document of the endpoints that generate no text."""

from __future__ import annotations

from gateway.wire.operation import Operation
from gateway.wire.pooling.schema import (
    EmbeddingList,
    EmbeddingRequest,
    RerankAnswer,
    RerankRequest,
    ScoreList,
    ScoreRequest,
)

EMBEDDINGS_PATH, RERANK_PATH, SCORE_PATH = "/v1/embeddings", "/v1/rerank", "/v1/score"
POOLING_OPERATIONS = (
    Operation(
        path=EMBEDDINGS_PATH,
        name="create_embedding",
        summary="Make vectors of texts.",
        body=EmbeddingRequest,
        answer=EmbeddingList,
        streamed=False,
    ),
    Operation(
        path=RERANK_PATH,
        name="rerank",
        summary="Order documents by their relevance for a query, as Cohere's and Jina's clients do.",
        body=RerankRequest,
        answer=RerankAnswer,
        streamed=False,
    ),
    Operation(
        path=SCORE_PATH,
        name="score",
        summary="Score pairs of texts, as vLLM's clients do.",
        body=ScoreRequest,
        answer=ScoreList,
        streamed=False,
    ),
)
