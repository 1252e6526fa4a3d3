"""Counts texts to continue as the engine will encode them, for any wire format, and estimates gaps without a tokenizer;
`fill/layout.py` counts other gaps."""

from __future__ import annotations

from contracts.errors import InvalidField, UnsupportedField
from contracts.generation import TextPrompt
from engines.tokenizer.segment_cache import LoopAllowance
from engines.tokenizer.sound import require_sound
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.control_tokens import require_plain
from gateway.wire.prepared import Counted, Target, estimate

MARKS = 16
"""Limit of the control tokens that a driver or an engine puts around a text: beginning, end, and the four of a gap."""


async def counted_texts(asked: TextPrompt, target: Target, organization_id: str) -> Counted:
    """asked: the client's prompt, with a suffix only for a model without a tokenizer. The result has the prompt that
    the engine gets. Raises a RequestError that names the field."""
    prompts, suffix, echo, tokenizer = asked.prompts, asked.suffix, asked.echo, target.tokenizer
    if tokenizer is None:
        if not target.capabilities.checks_token_ids and not all(isinstance(prompt, str) for prompt in prompts):
            raise UnsupportedField(
                "This model does not accept token ids, because it has no `tokenizer` to check them. Send text.",
                param="prompt",
            )
        counts = [len(p) if not isinstance(p, str) else estimate(len(p.encode())) for p in prompts]
        counts[0] += estimate(len((suffix or "").encode()))
        return Counted(asked, sum(counts), max(counts), False, _bound(asked))
    for at, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            tokenizer.tokenizer.require_known(prompt, f"prompt[{at}]" if len(prompts) > 1 else "prompt")
    assert suffix is None
    # check before the queue: a text that cannot fit need not wait
    texts = [text for text in prompts if isinstance(text, str)]
    for text in texts:
        tokenizer.tokenizer.require_fitting(require_sound(text), target.model.context_tokens)
    encoded = await tokenizer.run_known(
        organization_id, texts, lambda allowance: _ids(asked, target, tokenizer.tokenizer, organization_id, allowance)
    )
    counts = [len(ids) for ids in encoded]
    sent = TextPrompt(tuple(encoded), echo=echo) if target.capabilities.token_prompts else asked
    return Counted(sent, sum(counts), max(counts), True, sum(counts))


def _ids(
    asked: TextPrompt, target: Target, tokenizer: Tokenizer, organization_id: str, allowance: LoopAllowance | None
) -> list[tuple[int, ...]]:
    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, target.model.context_tokens, organization_id, allowance))

    encoded = [
        encode(prompt) or _document_start(tokenizer) if isinstance(prompt, str) else prompt for prompt in asked.prompts
    ]
    if not target.capabilities.token_prompts:
        require_plain(tokenizer, [prompt for prompt in asked.prompts if isinstance(prompt, str)], "prompt")
    return encoded


def _document_start(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The prompt that replaces an empty one, as at OpenAI: the token between documents."""
    if not tokenizer.end_ids:
        raise InvalidField(
            "'prompt' is empty, and this model has no token that begins a text. Send a prompt.", param="prompt"
        )
    return (min(tokenizer.end_ids),)


def _bound(asked: TextPrompt) -> int:
    """Upper bound of the prompts' tokens: a token has at least one byte, and engines may put a few marks around texts
    and gaps."""
    suffix_bytes = len((asked.suffix or "").encode())
    lengths = [len(prompt) if not isinstance(prompt, str) else len(prompt.encode()) for prompt in asked.prompts]
    return sum(length + suffix_bytes + MARKS for length in lengths)
