"""The endpoints that generate no text, as wire formats. None of them streams."""

from __future__ import annotations

import time

import msgspec

from contracts.generation import Caller
from contracts.pooling import EmbeddingWork, ScoringWork
from contracts.request_id import answer_id
from gateway.wire.chunk import ReadError
from gateway.wire.endpoint_format import BodyFormat
from gateway.wire.format import Transcoder
from gateway.wire.pooling.answer import EmbeddingAnswer, ScoringAnswer
from gateway.wire.pooling.prepare import prepare_embedding, prepare_rerank, prepare_score
from gateway.wire.pooling.schema import EmbeddingRequest, RerankRequest, ScoreRequest
from gateway.wire.prepared import Prepared, Target
from gateway.wire.usage_tracker import UsageTracker


class EmbeddingFormat(BodyFormat[EmbeddingRequest]):
    """POST /v1/embeddings."""

    name = "embeddings"
    heartbeat = b""
    body_type = EmbeddingRequest
    prepare = staticmethod(prepare_embedding)

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        work = prepared.details
        assert isinstance(work, EmbeddingWork)
        return EmbeddingAnswer(work, prepared.generation.public_model, usage, prepared.prompt_tokens)


class RerankFormat(BodyFormat[RerankRequest]):
    """POST /v1/rerank."""

    name = "rerank"
    heartbeat = b""
    body_type = RerankRequest

    async def prepare(
        self, asked: RerankRequest, request_id: str, caller: Caller, salt: str, target: Target
    ) -> Prepared:
        prepared = await prepare_rerank(asked, request_id, caller, salt, target)
        work = prepared.details
        assert isinstance(work, ScoringWork)
        top_n, shown = asked.top_n or len(asked.documents), asked.return_documents is not False
        return msgspec.structs.replace(prepared, details=Ranking(work.queries, work.documents, top_n, shown))

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        return _Ranked(request_id, prepared, usage)


class ScoreFormat(BodyFormat[ScoreRequest]):
    """POST /v1/score."""

    name = "score"
    heartbeat = b""
    body_type = ScoreRequest
    prepare = staticmethod(prepare_score)

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        return _Listed(request_id, prepared, usage)


class Ranking(ScoringWork, frozen=True):
    """The scoring of documents, and the part of its result that the client gets."""

    top_n: int
    shows_documents: bool


class _Listed(ScoringAnswer):
    """vLLM's list of scores, in the order of the pairs."""

    def __init__(self, request_id: str, prepared: Prepared, usage: UsageTracker) -> None:
        work = prepared.details
        assert isinstance(work, ScoringWork)
        super().__init__(work, usage, prepared.prompt_tokens)
        self._id = answer_id("score-", request_id)
        self._model = prepared.generation.public_model

    def finish(self) -> bytes:
        read = self.scores()
        answer = {
            "id": self._id,
            "object": "list",
            "created": int(time.time()),
            "model": self._model,
            "data": [{"object": "score", "index": at, "score": score} for at, score in enumerate(read.scores)],
            "usage": read.usage,
        }
        self.finished = True
        return msgspec.json.encode(answer)


class _Ranked(ScoringAnswer):
    """Cohere's and Jina's ranking: the most relevant first, equally relevant ones in the client's order."""

    def __init__(self, request_id: str, prepared: Prepared, usage: UsageTracker) -> None:
        work = prepared.details
        assert isinstance(work, Ranking)
        super().__init__(work, usage, prepared.prompt_tokens)
        self._id = answer_id("rerank-", request_id)
        self._model = prepared.generation.public_model
        self._work = work

    def finish(self) -> bytes:
        read, work = self.scores(), self._work
        best = sorted(range(len(read.scores)), key=lambda at: -read.scores[at])[: work.top_n]
        results = [
            {
                "index": at,
                "relevance_score": read.scores[at],
                **({"document": {"text": work.documents[at]}} if work.shows_documents else {}),
            }
            for at in best
        ]
        self.finished = True
        return msgspec.json.encode({"id": self._id, "model": self._model, "results": results, "usage": read.usage})
