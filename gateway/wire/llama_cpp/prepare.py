"""Turns llama.cpp's requests into gaps to fill or texts to continue."""

from __future__ import annotations

import msgspec

from contracts.errors import InvalidField
from contracts.generation import Caller, Sampling, TextPrompt
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.rendered import rendered_gap
from gateway.wire.fill.request import Filled, FillRequest
from gateway.wire.fill.stop_rules import StopRules
from gateway.wire.gap import Snippet
from gateway.wire.llama_cpp.answer import Wanted
from gateway.wire.llama_cpp.decode import choices, predict
from gateway.wire.llama_cpp.schema import Common, InfillRequest, LlamaCompletionRequest
from gateway.wire.prepared import Prepared, Target, output_limit, prepared, resampled
from gateway.wire.text_prompt import counted_texts


async def prepare_infill(asked: InfillRequest, request_id: str, caller: Caller, salt: str, target: Target) -> Prepared:
    """Prepare a gap. The typed part of the cursor's line, the client's `prompt`, is the end of the prefix. Raises a
    RequestError that names the field."""
    snippets = tuple(Snippet(extra.filename, extra.text) for extra in asked.input_extra or ())
    gap = _gap(asked, asked.input_prefix + asked.prompt, asked.input_suffix, snippets)
    if asked.temperature is None and choices(asked) == 1:
        # editors' plug-ins rely on the sampler `infill`, which keeps few tokens other than the likeliest
        gap = msgspec.structs.replace(gap, temperature=0.0)
    filled = await prepare_fill(gap, request_id, caller, salt, target, _wanted(asked))
    return _sampled(filled, asked)


async def prepare_completion(
    asked: LlamaCompletionRequest, request_id: str, caller: Caller, salt: str, target: Target
) -> Prepared:
    """Prepare a completion. A gap that the client has rendered itself is laid out again, if the model supports and
    allows it; any other text is continued unchanged. Raises a RequestError that names the field."""
    rendered = rendered_gap(asked.prompt, target) if isinstance(asked.prompt, str) else None
    if rendered is not None:
        gap = msgspec.structs.replace(_gap(asked, rendered.prefix, rendered.suffix, rendered.snippets), typed=False)
        return _sampled(await prepare_fill(gap, request_id, caller, salt, target, _wanted(asked)), asked)
    return _sampled(await _continued(asked, request_id, caller, salt, target), asked)


async def _continued(
    asked: LlamaCompletionRequest, request_id: str, caller: Caller, salt: str, target: Target
) -> Prepared:
    """Prepare a text without a gap, which is neither cut nor trimmed."""
    if asked.min_confidence:
        raise InvalidField(
            "'min_confidence' applies only to gaps, and the prompt has none. Leave it out.", param="min_confidence"
        )
    prompt = asked.prompt if isinstance(asked.prompt, str) else tuple(asked.prompt)
    counted = await counted_texts(TextPrompt((prompt,)), target, caller.organization_id)
    requested = predict(asked)
    max_tokens = output_limit(
        1 if requested == 0 else requested, target.model.default_max_tokens, counted.longest, target, "n_predict"
    )
    filled = Filled(
        rules=msgspec.structs.replace(_rules(asked), trim_suffix=False, repetition=False),
        suffix="",
        warm_up=requested == 0,
        details=_wanted(asked),
    )
    sampling = Sampling(
        max_tokens, temperature=asked.temperature, top_p=asked.top_p, seed=asked.seed, stop=_stops(asked)
    )
    stream = bool(asked.stream)
    return prepared(
        counted, sampling, request_id, caller, salt, target, stream=stream, warm_up=filled.warm_up, details=filled
    )


def _gap(asked: Common, prefix: str, suffix: str, snippets: tuple[Snippet, ...]) -> FillRequest:
    requested = predict(asked)
    return FillRequest(
        model=asked.model,
        prefix=prefix,
        suffix=suffix,
        snippets=snippets,
        max_tokens=requested or None,
        temperature=asked.temperature,
        top_p=asked.top_p,
        seed=asked.seed,
        stop=_stops(asked),
        stream=bool(asked.stream),
        rules=_rules(asked),
        min_confidence=asked.min_confidence,
        warm_up=requested == 0,
    )


def _sampled(filled: Prepared, asked: Common) -> Prepared:
    """The request with the sampling options that `prepare_fill` does not set."""
    return resampled(
        filled,
        n=1 if predict(asked) == 0 else choices(asked),
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
    )


def _rules(asked: Common) -> StopRules:
    limit_ms = asked.t_max_predict_ms
    return StopRules(min_indent=asked.n_indent or None, time_limit_s=limit_ms / 1e3 if limit_ms > 0 else None)


def _stops(asked: Common) -> tuple[str, ...]:
    """The stop texts without empty ones, which llama.cpp ignores."""
    return tuple(stop for stop in asked.stop or () if stop)


def _wanted(asked: Common) -> Wanted:
    return Wanted(tuple(asked.response_fields or ()), several=choices(asked) > 1)
