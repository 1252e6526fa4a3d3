"""Lays a gap out for its model within the available room: snippets, then the window of the file, as in its training.

Text that does not fit is left out. If the model's `fim.window` is off, the request is refused instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from contracts.errors import ContextTooLong, UnsupportedField
from contracts.generation import Sampling, TextPrompt
from engines.drivers.base import Capabilities
from engines.tokenizer.fill import FillTemplate
from engines.tokenizer.segment_cache import LoopAllowance, NeedsThread
from engines.tokenizer.sound import require_sound
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.control_tokens import require_plain
from gateway.wire.fill.healing import Own, healed_from
from gateway.wire.fill.related import as_text, has_files, within
from gateway.wire.fill.window import LOOKED_AT, Window, window
from gateway.wire.gap import Gap, Snippet
from gateway.wire.prepared import Counted, Target, estimate, output_limit
from gateway.wire.text_prompt import counted_texts

SNIPPETS_PART = 4
"""Divisor of the room: snippets take at most the quotient."""
MIN_TOKENS = 4
"""Tokens of text, without its marks, that a window must have room for."""


class Ends(msgspec.Struct, frozen=True):
    """Texts and ids of a model family that end a completion, in addition to its own end tokens."""

    ids: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()

    def added(self, sampling: Sampling) -> Sampling:
        """Sampling that also ends there."""
        return msgspec.structs.replace(sampling, stop=(*sampling.stop, *self.texts), stop_ids=self.ids)


class LaidOut(msgspec.Struct, frozen=True):
    """A gap in the form that the engine gets."""

    counted: Counted
    suffix: str
    """The shown part of the suffix."""
    truncated: bool
    """Whether a part of the file is not shown."""
    max_tokens: int = 0
    """The output limit: the requested one, or as much of it as the prompt leaves."""
    ends: Ends = Ends()


async def lay_out(
    gap: Gap,
    asked_tokens: int | None,
    default: int,
    target: Target,
    organization_id: str,
    stop: Sequence[str] = (),
    own: Own = None,
) -> LaidOut:
    """asked_tokens: the client's output limit; None for `default`. If windows are allowed, the prompt may use half of
    the context, and a limit that does not fit next to it is lowered; otherwise, it is refused. stop, own: see
    `healed_from`.

    Raises UnsupportedField for a model that fills no gaps, ContextTooLong if the response leaves no room, and the
    errors of `counted_texts`.
    """
    room = target.model.context_tokens - (asked_tokens or 1)
    if target.model.fim.window:
        room = target.model.context_tokens - min(asked_tokens or default, target.model.context_tokens // 2)

    def opened_at(tokenizer: Tokenizer) -> int:
        return healed_from(gap.prefix, asked_tokens or default, stop, target, tokenizer, own)

    laid_out = await _laid_out(gap, room, opened_at, target, organization_id)
    limit = _limit(asked_tokens, default, laid_out.counted.longest, target)
    return msgspec.structs.replace(laid_out, max_tokens=limit)


def _limit(asked: int | None, default: int, prompt_tokens: int, target: Target) -> int:
    if not target.model.fim.window:
        return output_limit(asked, default, prompt_tokens, target, "max_tokens")
    return max(1, min(asked or default, target.model.context_tokens - prompt_tokens))


async def _laid_out(
    gap: Gap, room: int, opened_at: Callable[[Tokenizer], int], target: Target, organization_id: str
) -> LaidOut:
    tokenizer = target.tokenizer
    if tokenizer is None:
        return await _by_estimate(gap, room, target, organization_id)
    require_filling(tokenizer.tokenizer, target.model.name)
    texts = [gap.prefix, gap.suffix, *(text for snippet in gap.snippets for text in (snippet.path, snippet.text))]
    for text in texts:
        require_sound(text)
    if not target.model.fim.window:
        for text in texts:
            tokenizer.tokenizer.require_fitting(len(text.encode()), target.model.context_tokens)

    def healed(allowance: LoopAllowance | None) -> LaidOut:
        cut = opened_at(tokenizer.tokenizer)
        return _healed(gap, room, cut, target, tokenizer.tokenizer, organization_id, allowance)

    return await tokenizer.run_known(organization_id, texts, healed)


def require_filling(tokenizer: Tokenizer, model: str) -> None:
    """Raise UnsupportedField for a model that has no tokens for gaps."""
    if tokenizer.fill is None:
        raise UnsupportedField(
            f"Model '{model}' cannot fill a gap: it has no fill-in-the-middle tokens. Name a model of the tier "
            "'autocomplete' (GET /v1/models lists them), or send a text without a gap.",
            param="model",
        )


def _healed(
    gap: Gap,
    room: int,
    cut: int,
    target: Target,
    tokenizer: Tokenizer,
    organization_id: str,
    allowance: LoopAllowance | None,
) -> LaidOut:
    """The layout with the prefix up to `cut`; the output must begin with the rest of the prefix."""
    before = msgspec.structs.replace(gap, prefix=gap.prefix[:cut])
    laid_out = _layout(before, room, target, tokenizer, organization_id, allowance)
    if cut == len(gap.prefix):
        return laid_out
    return msgspec.structs.replace(laid_out, counted=laid_out.counted.beginning_with(gap.prefix[cut:]))


def _layout(
    gap: Gap, room: int, target: Target, tokenizer: Tokenizer, organization_id: str, allowance: LoopAllowance | None
) -> LaidOut:
    if gap.snippets:  # like windows, they are counted, and no cache spares that
        _require_thread(allowance)
    template, counts = target.fill, tokenizer.plain_counts
    assert template is not None
    limit = None if target.model.fim.window else target.model.context_tokens

    def encode(text: str) -> list[int]:
        return tokenizer.plain_ids(text, limit, organization_id, allowance)

    marks = len(tokenizer.leading_ids) + template.marks
    if target.model.fim.window:
        _require_room(room, marks, target)
    token_prompts = target.capabilities.token_prompts
    snippets = within(gap.snippets, room // SNIPPETS_PART, counts)
    files: list[int] = []
    head = ""
    if snippets and token_prompts and has_files(template):
        files = [
            *template.repository(encode),
            *(id_ for snippet in snippets for id_ in template.file(snippet.path, snippet.text, encode)),
            *(template.file(gap.path, "", encode) if gap.path else ()),
        ]
    else:
        head = as_text(snippets, gap.path, gap.language, template.file_line)
    if token_prompts and template.comments_first:
        head, files = "", files or encode(head)

    def ids_of(shown: Window) -> list[int]:
        prefix = head + gap.prefix[shown.start :]
        cut = template.cut(prefix)
        sides = encode(prefix[:cut]), encode(gap.suffix[: shown.end]), encode(prefix[cut:])
        return template.lay_out(tokenizer.leading_ids, *sides, files)

    text_room = room - marks - len(files) - counts([head])[0]
    shown = Window(0, len(gap.suffix))
    if target.model.fim.window and len(gap.prefix) + len(gap.suffix) > text_room * LOOKED_AT:
        _require_thread(allowance)
        shown = window(gap.prefix, gap.suffix, max(0, text_room), counts)
    ids = ids_of(shown)
    while len(ids) > room:
        if not target.model.fim.window:
            raise _too_long(target, len(ids), target.model.context_tokens - room, "prompt")
        if (shown.start, shown.end) != (0, len(gap.suffix)):
            # joined lines cost a little more than single ones; each iteration has less room, down to none
            text_room = min(text_room, room) - max(1, len(ids) - room)
        if text_room < 0:
            head, files = "", []
        _require_thread(allowance)
        shown = window(gap.prefix, gap.suffix, max(0, text_room), counts)
        ids = ids_of(shown)
    prefix, suffix = head + gap.prefix[shown.start :], gap.suffix[: shown.end]
    prompt = TextPrompt((tuple(ids),), filled_gap=True)
    if not token_prompts:
        require_plain(tokenizer, prefix, "prompt")
        require_plain(tokenizer, suffix, "suffix")
        prompt = TextPrompt((prefix,), suffix)
    counted = Counted(prompt, len(ids), len(ids), True, len(ids))
    ends = ends_of(template, target.capabilities)
    return LaidOut(counted, suffix, shown != Window(0, len(gap.suffix)), ends=ends)


def _require_thread(allowance: LoopAllowance | None) -> None:
    if allowance is not None:
        raise NeedsThread


def ends_of(template: FillTemplate, capabilities: Capabilities) -> Ends:
    """A template's ends: ids if the engine takes them, otherwise texts, if the engine emits such tokens as text."""
    if capabilities.stop_ids:
        return Ends(template.end_ids, template.end_lines)
    return Ends((), (*template.end_texts, *template.end_lines))


async def _by_estimate(gap: Gap, room: int, target: Target, organization_id: str) -> LaidOut:
    """The layout by estimates, for a model without a tokenizer here: the engine's own check decides."""
    shown = Window(0, len(gap.suffix))
    snippets: tuple[Snippet, ...] = ()
    if target.model.fim.window:
        _require_room(room, estimate(0), target)
        snippets = within(gap.snippets, room // SNIPPETS_PART, _estimates)
    head = as_text(snippets if target.model.fim.window else gap.snippets, gap.path, gap.language, "")
    if target.model.fim.window and sum(_estimates([head, gap.prefix, gap.suffix])) > room:
        remaining = max(0, room - 2 * estimate(0) - _estimates([head])[0])
        # the search is line by line: for a large file and a large context, it is too long for the event loop
        shown = await asyncio.to_thread(window, gap.prefix, gap.suffix, remaining, _estimates)
    prefix, suffix = head + gap.prefix[shown.start :], gap.suffix[: shown.end]
    counted = await counted_texts(TextPrompt((prefix,), suffix), target, organization_id)
    return LaidOut(counted, suffix, shown != Window(0, len(gap.suffix)))


def _estimates(texts: Sequence[str]) -> list[int]:
    """Estimated tokens of texts, without the tokens that `estimate` adds for a whole prompt."""
    return [estimate(len(text.encode("utf-8", "surrogatepass"))) - estimate(0) + 1 for text in texts]


def _require_room(room: int, marks: int, target: Target) -> None:
    least = marks + MIN_TOKENS
    if room < least:
        raise _too_long(target, least, target.model.context_tokens - room, "max_tokens")


def _too_long(target: Target, prompt_tokens: int, output_tokens: int, param: str) -> ContextTooLong:
    return ContextTooLong(
        limit_tokens=target.model.context_tokens,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        param=param,
    )
