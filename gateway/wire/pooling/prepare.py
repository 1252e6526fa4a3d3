"""Counts the texts of a request without output, and makes its Generation, which generates no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from contracts.errors import ContextTooLong, InvalidField, SlipstreamError, UnsupportedField
from contracts.generation import Caller, Generation, Sampling, TextPrompt
from contracts.pooling import EmbeddingWork, PoolingWork, ScoringWork
from engines.tokenizer.sound import require_sound
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.pooling.schema import MAX_INPUTS, Document, EmbeddingRequest, RerankRequest, ScoreRequest
from gateway.wire.prepared import Prepared, Target, estimate
from gateway.wire.text_prompt import MARKS


class Named(NamedTuple):
    """A text or token ids of a request, with their path in its body."""

    param: str
    value: str | tuple[int, ...]


class Tokens(NamedTuple):
    """The tokens of one text."""

    least: int
    """Tokens without the control tokens that an engine may add."""
    bound: int
    """Upper bound of the engine's count."""


async def prepare_embedding(
    asked: EmbeddingRequest, request_id: str, caller: Caller, salt: str, target: Target
) -> Prepared:
    """Raises a RequestError that names the field, ContextTooLong for an input that cannot fit."""
    inputs = _inputs(asked.input)
    tokens = await _counted(inputs, target, caller.organization_id)
    for one, counted in zip(inputs, tokens, strict=True):
        _require_fitting(counted.least, target, one.param)
    work = EmbeddingWork(tuple(one.value for one in inputs), asked.encoding_format or "float", asked.dimensions)
    return _prepared(work, work.inputs, tokens, request_id, caller, salt, target)


async def prepare_rerank(asked: RerankRequest, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
    """Raises a RequestError that names the field, ContextTooLong for a pair that cannot fit."""
    documents = [one.text if isinstance(one, Document) else one for one in asked.documents]
    return await _prepare_pairs(
        [Named("query", asked.query)], _named("documents", documents), request_id, caller, salt, target
    )


async def prepare_score(asked: ScoreRequest, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
    """Raises a RequestError that names the field, ContextTooLong for a pair that cannot fit."""
    first, second = (
        [Named(name, texts)] if isinstance(texts, str) else _named(name, texts)
        for name, texts in (("text_1", asked.text_1), ("text_2", asked.text_2))
    )
    if len(first) not in (1, len(second)):
        raise InvalidField(
            f"'text_1' has {len(first)} texts and 'text_2' has {len(second)}. Send a single text in one of them, or "
            "the same number in both.",
            param="text_1",
        )
    return await _prepare_pairs(first, second, request_id, caller, salt, target)


async def _prepare_pairs(
    queries: list[Named], documents: list[Named], request_id: str, caller: Caller, salt: str, target: Target
) -> Prepared:
    counted = await _counted([*queries, *documents], target, caller.organization_id)
    query_tokens, document_tokens = counted[: len(queries)], counted[len(queries) :]
    pairs = [
        Tokens(one.least + other.least, one.bound + other.bound)
        for one, other in zip(query_tokens * (len(document_tokens) // len(query_tokens)), document_tokens, strict=True)
    ]
    for document, tokens in zip(documents, pairs, strict=True):
        _require_fitting(tokens.least, target, document.param)
    work = ScoringWork(tuple(str(one.value) for one in queries), tuple(str(one.value) for one in documents))
    return _prepared(work, work.documents, pairs, request_id, caller, salt, target)


def _inputs(asked: str | list[str | int | list[int]]) -> list[Named]:
    """The inputs, for any of the four shapes."""
    if isinstance(asked, str):
        return _named("input", [asked], alone=True)
    if asked and all(isinstance(one, int) for one in asked):
        return [Named("input", tuple(one for one in asked if isinstance(one, int)))]
    values: list[str | tuple[int, ...]] = []
    for index, one in enumerate(asked):
        if isinstance(one, int) or isinstance(one, str) is not isinstance(asked[0], str):
            raise InvalidField("'input' mixes texts and token ids; send one kind.", param=f"input[{index}]")
        values.append(one if isinstance(one, str) else tuple(one))
    return _named("input", values)


def _named(field: str, values: Sequence[str | tuple[int, ...]], *, alone: bool = False) -> list[Named]:
    """The values with their paths. Raises InvalidField if there are none or too many, or if one is empty."""
    if not 1 <= len(values) <= MAX_INPUTS:
        raise InvalidField(f"'{field}' has {len(values)} entries; send 1 to {MAX_INPUTS}.", param=field)
    named = [Named(field if alone else f"{field}[{index}]", value) for index, value in enumerate(values)]
    empty = next((one for one in named if not (one.value.strip() if isinstance(one.value, str) else one.value)), None)
    if empty is not None:
        step = "Send a text." if alone else "Remove it."
        raise InvalidField(f"'{empty.param}' is empty. {step}", param=empty.param)
    return named


async def _counted(texts: list[Named], target: Target, organization_id: str) -> list[Tokens]:
    tokenizer = target.tokenizer
    if tokenizer is None:
        ids = next((one for one in texts if not isinstance(one.value, str)), None)
        if ids is not None and not target.capabilities.checks_token_ids:
            raise UnsupportedField(
                "Slipstream cannot check token ids for this model, because it has no `tokenizer` setting. Send texts.",
                param=ids.param,
            )
        return [_estimated(one.value) for one in texts]
    limit_tokens = target.model.context_tokens

    def count(one: Named, tokenizer: Tokenizer) -> Tokens:
        try:
            if not isinstance(one.value, str):
                ids = len(one.value)
                if ids <= limit_tokens:
                    tokenizer.require_known(one.value, one.param)
                return Tokens(ids, ids + MARKS)
            ids = len(tokenizer.encode(one.value, limit_tokens))
        except SlipstreamError as error:
            error.param = one.param
            raise
        return Tokens(ids, ids + MARKS)

    own = tokenizer.tokenizer
    return await tokenizer.run(
        organization_id, [one.value for one in texts], lambda: [count(one, own) for one in texts]
    )


def _estimated(value: str | tuple[int, ...]) -> Tokens:
    if not isinstance(value, str):
        return Tokens(len(value), len(value) + MARKS)
    size_bytes = require_sound(value)
    return Tokens(estimate(size_bytes), size_bytes + MARKS)


def _require_fitting(tokens: int, target: Target, param: str) -> None:
    """Raise ContextTooLong for too many tokens. Without a tokenizer, they are an estimate, and the engine decides."""
    limit_tokens = target.model.context_tokens
    if target.tokenizer is not None and tokens > limit_tokens:
        raise ContextTooLong(limit_tokens=limit_tokens, prompt_tokens=tokens, output_tokens=0, param=param)


def _prepared(
    work: PoolingWork,
    prompts: tuple[str | tuple[int, ...], ...],
    tokens: list[Tokens],
    request_id: str,
    caller: Caller,
    salt: str,
    target: Target,
) -> Prepared:
    if target.adapter is not None:
        raise UnsupportedField(
            "Adapters are for models that generate text. Leave the adapter out of 'model'.", param="model"
        )
    generation = Generation(
        request_id=request_id,
        caller=caller,
        tier=target.model.tier,
        model=target.model.name,
        prompt=TextPrompt(prompts),
        sampling=Sampling(max_tokens=0),
        cache_salt=salt,
    )
    return Prepared(
        generation,
        sum(one.least for one in tokens),
        exact=False,
        prompt_tokens_bound=sum(one.bound for one in tokens),
        details=work,
        salt=salt,
    )
