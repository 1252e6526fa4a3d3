"""Serves embeddings: tokenizes and submits the inputs, and returns all vectors in one body."""

from __future__ import annotations

import base64
import uuid
from array import array
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from contracts.errors import ContextTooLong, InvalidField, ModelNotFound, Overloaded, UnsupportedField
from engines.embedded.http.bodies import decode_body
from engines.embedded.http.exchange import JSON, Exchange
from engines.embedded.http.stream import require_no_error
from engines.embedded.pooling import Pooling
from engines.embedded.request import Request, Sampling
from engines.embedded.service import Service
from engines.tokenizer.off_loop import OffLoopTokenizer

TokenIds = tuple[int, ...]


class EmbeddingBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/embeddings"""

    model: str
    input: str | list[Any]
    """Text, texts, token ids or lists of them; its type is checked where it is encoded."""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None
    rid: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    cache_salt: str | None = None


class EmbeddingHandlers:
    """POST /v1/embeddings. pooling: None if the model generates text."""

    def __init__(self, service: Service, pooling: Pooling | None) -> None:
        self._service = service
        self._pooling = pooling
        self._tokenizer = OffLoopTokenizer(service.tokenizer)

    async def create(self, exchange: Exchange) -> None:
        """Return a vector for each input, in the order of the inputs."""
        service, pooling = self._service, self._pooling
        body = decode_body(await exchange.body(service.config.max_body_bytes), EmbeddingBody)
        if pooling is None:
            raise UnsupportedField(f"{service.name!r} generates text and makes no vectors.", param="model")
        if body.model != service.name:
            raise ModelNotFound(f"This engine serves {service.name!r}, not {body.model!r}.", param="model")
        width = service.model.hidden_size
        if body.dimensions is not None and not pooling.can_have(body.dimensions, width):
            raise UnsupportedField(
                f"dimensions: {body.dimensions}; this model's vectors have {width} numbers.", param="dimensions"
            )
        rid = body.rid or uuid.uuid4().hex
        prompts = await service.preparation.run(rid, self._prompts(body), exchange.on_disconnect)
        vectors: list[bytes] = []
        sampling, size = Sampling(max_tokens=0, pools_all=pooling.mode == "mean"), service.config.scheduler.max_running
        # in waves, because a queue may be shorter than a list of texts
        for first in range(0, len(prompts), size):
            name, wave = f"{rid}+{first}" if first else rid, tuple(prompts[first : first + size])
            vectors += await self._served(exchange, Request(name, wave, sampling, cache_salt=body.cache_salt or ""))
        tokens = sum(map(len, prompts))
        data = [
            {"object": "embedding", "index": at, "embedding": _shown(vector, body)} for at, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        answer = {"object": "list", "data": data, "model": service.name, "usage": usage}
        await exchange.answer(200, msgspec.json.encode(answer), JSON)

    async def _served(self, exchange: Exchange, request: Request) -> list[bytes]:
        """The vectors of one wave. Raises Overloaded if the wave was aborted."""
        service = self._service
        live = service.submit(request)
        watch = exchange.on_disconnect(lambda: service.abort(request.rid))
        vectors: dict[int, bytes] = {}
        try:
            while not live.finished:
                news = await live.news()
                require_no_error(news)
                vectors.update({delta.index: delta.vector for delta in news if delta.vector is not None})
        finally:
            watch.cancel()
            if not live.finished:
                service.abort(request.rid)
        if len(vectors) < request.choices:
            raise Overloaded("The request was aborted.", retry_after_s=1.0)
        return [vectors[index] for index in range(request.choices)]

    async def _prompts(self, body: EmbeddingBody) -> list[TokenIds]:
        value = body.input
        if isinstance(value, str):
            inputs: list[Any] = [value]
        elif value and all(isinstance(one, int) for one in value):
            inputs = [value]
        else:
            inputs = value
        if not inputs:
            raise InvalidField("input must not be empty.", param="input")
        texts = [one for one in inputs if isinstance(one, str)]
        return await self._tokenizer.run(
            body.cache_salt or "", texts, lambda: [self._ids(one, at) for at, one in enumerate(inputs)]
        )

    def _ids(self, value: Any, at: int) -> TokenIds:
        """Token ids of one input. Raises InvalidField and ContextTooLong."""
        tokenizer, limit, param = self._service.tokenizer, self._service.context_tokens, f"input[{at}]"
        if isinstance(value, str):
            ids = (*tokenizer.encode(value, limit), *tokenizer.trailing_ids)
        elif isinstance(value, list) and all(type(id_) is int and 0 <= id_ < self._vocabulary for id_ in value):
            ids = tuple(value)
        else:
            raise InvalidField(f"{param} must be text, or token ids below {self._vocabulary}.", param=param)
        if not ids:
            raise InvalidField(f"{param} is empty.", param=param)
        if len(ids) > limit:
            raise ContextTooLong(limit_tokens=limit, prompt_tokens=len(ids), output_tokens=0, param=param)
        return ids

    @property
    def _vocabulary(self) -> int:
        return self._service.model.vocab_size


def _shown(vector: bytes, body: EmbeddingBody) -> list[float] | str:
    """The vector in the requested format; a shortened vector is scaled to length 1."""
    numbers = array("f", vector)
    if body.dimensions is not None and body.dimensions < len(numbers):
        numbers = numbers[: body.dimensions]
        length = sum(one * one for one in numbers) ** 0.5 or 1.0
        numbers = array("f", [one / length for one in numbers])
    return base64.b64encode(numbers.tobytes()).decode() if body.encoding_format == "base64" else numbers.tolist()
