"""Request bodies of the endpoints that generate no text, and the shape of their responses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.pooling import EncodingFormat
from gateway.wire.openai.schema import MAX_MODEL_NAME, Metadata, Positive, Tag, Text, TokenId

MAX_INPUTS = 2_048
"""OpenAI's limit of texts in one request."""

Name = Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_NAME)]


class EmbeddingRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/embeddings."""

    model: Name
    input: Text | list[Text | TokenId | list[TokenId]]
    """Text, texts, token ids, or lists of token ids; never mixed."""
    encoding_format: EncodingFormat | None = None
    """`base64`: the vector's float32 numbers, little-endian."""
    dimensions: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    """Length of the vectors, for models that can shorten theirs."""
    user: Tag | None = None
    metadata: Metadata | None = None


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """A document as an object."""

    text: Text


class RerankRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/rerank, as Cohere and Jina have it."""

    model: Name
    query: Text
    documents: Annotated[list[Text | Document], Meta(min_length=1)]
    top_n: Positive | None = None
    return_documents: bool | None = None
    """If false, results have only the document's index."""
    user: Tag | None = None


class ScoreRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/score, as vLLM has it: one text with others, or as many with as many."""

    model: Name
    text_1: Text | Annotated[list[Text], Meta(min_length=1)]
    text_2: Text | Annotated[list[Text], Meta(min_length=1)]
    user: Tag | None = None


class PromptUsage(msgspec.Struct):
    """Nothing is generated: all tokens are prompt."""

    prompt_tokens: int
    total_tokens: int


class Embedding(msgspec.Struct):
    """The vector of one input."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(msgspec.Struct):
    """All vectors, in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: PromptUsage


class RerankResult(msgspec.Struct, omit_defaults=True):
    """A document's rank is its place in the list."""

    index: int
    relevance_score: float
    document: Document | None = None


class RerankAnswer(msgspec.Struct):
    """The most relevant documents first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: PromptUsage


class Score(msgspec.Struct):
    """The score of one pair."""

    object: Literal["score"]
    index: int
    score: float


class ScoreList(msgspec.Struct):
    """All scores, in the order of the pairs."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: PromptUsage
