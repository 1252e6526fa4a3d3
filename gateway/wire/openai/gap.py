"""A gap of OpenAI's endpoint to which the rules of editors' formats apply: because its client is a known editor, by its
model's `fim.rules`, or because the request has a `min_confidence`."""

from __future__ import annotations

from typing import Any, TypeGuard

from contracts.errors import InvalidField, UnsupportedField
from contracts.generation import Caller
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.request import FillRequest
from gateway.wire.gap import Gap
from gateway.wire.openai.schema import CompletionRequest
from gateway.wire.prepared import Prepared, Target, resampled, stop_texts

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""


def keeps_rules(gap: Gap | None, request: CompletionRequest, target: Target) -> TypeGuard[Gap]:
    """Whether editors' stop rules apply. Raises a RequestError if the request requires them where they cannot apply."""
    if request.min_confidence and gap is None:
        raise InvalidField(
            "'min_confidence' applies only to gaps. Send 'suffix' too, or a prompt that is laid out with a gap.",
            param="min_confidence",
        )
    alone = (request.best_of or request.n or 1) == 1 and request.logprobs is None
    if request.min_confidence and not alone:
        raise UnsupportedField(
            "'min_confidence' cannot be combined with 'logprobs' or with several choices.", param="min_confidence"
        )
    ruled = target.from_editor or target.model.fim.rules == "all"
    return gap is not None and alone and bool(request.min_confidence or ruled)


async def prepare_gap(
    gap: Gap,
    request: CompletionRequest,
    request_id: str,
    caller: Caller,
    salt: str,
    target: Target,
    own: dict[str, Any] | None = None,
    *,
    include_usage: bool,
) -> Prepared:
    """Prepare the gap like an editor's, with OpenAI's default output limit. own: parameters of engines, see
    `Sampling.engine_parameters`."""
    fill = FillRequest(
        model=request.model,
        prefix=gap.prefix,
        suffix=gap.suffix,
        snippets=gap.snippets,
        max_tokens=request.max_tokens or DEFAULT_MAX_TOKENS,
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        stop=stop_texts(request.stop),
        engine_parameters=own,
        stream=bool(request.stream),
        include_usage=include_usage,
        session=request.user or "",
        typed=bool(request.user),
        min_confidence=request.min_confidence,
    )
    prepared = await prepare_fill(fill, request_id, caller, salt, target)
    return resampled(
        prepared,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        logit_bias=request.logit_bias or None,
    )
