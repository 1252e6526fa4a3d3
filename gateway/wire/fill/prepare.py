r"""Turns a gap into a Generation: windowed into the model's context, laid out as the model was trained, and counted.

The model always gets `\n` line ends; the transcoders restore the file's own for the client.
"""

from __future__ import annotations

import msgspec

from contracts.generation import Caller, Sampling, opening_of
from gateway.wire.fill.context import by_context
from gateway.wire.fill.layout import lay_out
from gateway.wire.fill.request import Filled, FillRequest
from gateway.wire.gap import Gap, Snippet
from gateway.wire.language import language_of_path
from gateway.wire.prepared import Prepared, Target, prepared

FILL_DEFAULT_MAX_TOKENS = 64
"""About six lines: a user reads a completion between two keystrokes."""


async def prepare_fill(
    asked: FillRequest, request_id: str, caller: Caller, salt: str, target: Target, details: object = None
) -> Prepared:
    """details: the format's own data, kept in `Filled.details`; the `Filled` is `Prepared.details`. Raises a
    RequestError that names the field."""
    newline = "\r\n" if "\r\n" in asked.prefix or "\r\n" in asked.suffix else "\n"
    gap = Gap(
        _plain(asked.prefix),
        _plain(asked.suffix),
        tuple(Snippet(snippet.path, _plain(snippet.text)) for snippet in asked.snippets),
        asked.path,
        asked.language,
    )
    default = min(FILL_DEFAULT_MAX_TOKENS, target.model.default_max_tokens)
    max_tokens = 1 if asked.warm_up else asked.max_tokens
    stop = tuple(_plain(text) for text in asked.stop)
    own = asked.engine_parameters
    laid_out = await lay_out(gap, max_tokens, default, target, caller.organization_id, stop, own)
    sampling = Sampling(
        max_tokens=laid_out.max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        seed=asked.seed,
        stop=stop,
        engine_parameters=own,
    )
    min_confidence = _least(asked, target)
    if min_confidence:
        # 1, not 0: llama.cpp reports none for 0
        sampling = msgspec.structs.replace(sampling, logprobs=1)
    language = asked.language or language_of_path(asked.path)
    rules = by_context(asked.rules, target.model.fim.lines, gap.prefix, gap.suffix, language)
    filled = Filled(
        rules=rules,
        suffix=laid_out.suffix,
        newline=newline,
        truncated=laid_out.truncated,
        opening=opening_of(laid_out.counted.prompt),
        min_confidence=min_confidence,
        warm_up=asked.warm_up,
        details=details,
    )
    return prepared(
        laid_out.counted,
        laid_out.ends.added(sampling),
        request_id,
        caller,
        salt,
        target,
        stream=asked.stream,
        include_usage=asked.include_usage,
        session=asked.session,
        warm_up=asked.warm_up,
        typed=asked.typed and not asked.warm_up,
        language=language,
        details=filled,
        gap=gap,
        rules=rules,
    )


def _least(asked: FillRequest, target: Target) -> float:
    """The confidence that the completion needs."""
    if asked.warm_up:
        return 0.0
    if asked.min_confidence is not None:
        return asked.min_confidence
    template = None if target.tokenizer is None else target.tokenizer.tokenizer.fill
    return target.model.fim.min_confidence_of(target.client, 0.0 if template is None else template.min_confidence)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n") if "\r" in text else text
