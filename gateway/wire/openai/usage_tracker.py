"""The usage an engine has reported so far in one stream, whichever of its events carried it."""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import EngineFailed
from contracts.usage import Usage
from engines.drivers.error_bodies import usage_of, with_drafts
from gateway.wire.openai.delivered import Delivered


class UsageTracker:
    """What was used at least, after every event.

    With several choices an event's usage counts its own choice only; the last event, the one without choices, counts
    all. A stream that breaks off before it has used at least the sum over its choices, each prompt once.
    """

    __slots__ = ("_by_choice", "_choices", "_extension", "_per_prompt", "_salted_cache", "_whole", "delivered", "final")

    def __init__(self, choices: int, prompts: int = 1, *, salted_cache: bool = True) -> None:
        """salted_cache: as `Capabilities.salted_cache`; without it no token is told or priced as cached."""
        self.delivered: Delivered | None = Delivered()
        """What was sent, as long as the engine has told no usage; None from then on."""
        self.final = False
        """The engine has told what it used in all."""
        self._salted_cache = salted_cache
        self._choices = choices
        self._per_prompt = choices // prompts
        self._by_choice: dict[int, Usage] = {}
        self._whole: Usage | bytes | None = None
        self._extension: Any = None

    def raw(self, usage: bytes) -> None:
        """A usage object as it was found in the only choice's event; decoded if anybody asks."""
        self._whole = usage
        if self.delivered is not None and _decoded(usage) is not None:
            self.delivered = None

    def chunk(self, chunk: dict[str, Any]) -> None:
        """An event that may carry usage, or what SGLang tells beside it."""
        self._extension = chunk.get("sglext") or self._extension
        usage, choices = chunk.get("usage"), chunk.get("choices") or []
        if not isinstance(usage, dict):
            if self.delivered is not None:
                self.delivered.chunk(chunk)
            return
        told = usage_of(usage)
        if self._choices > 1 and len(choices) == 1:
            self._by_choice[int(choices[0].get("index") or 0)] = told
        else:
            self._whole = told
        self.final = not choices
        self.delivered = None

    @property
    def output_tokens(self) -> dict[int, int]:
        """Generated tokens by choice, as far as events told them apart."""
        return {index: usage.completion_tokens for index, usage in self._by_choice.items()}

    @property
    def total(self) -> Usage | None:
        """All choices together; None as long as nothing was reported."""
        usage = self._counted()
        if usage is None:
            return None
        if not self._salted_cache:
            usage = msgspec.structs.replace(usage, cached_tokens=0)
        return usage if self._extension is None else with_drafts(usage, self._extension)

    def tell(self, usage: Usage) -> None:
        """What we counted ourselves, for an engine that has told nothing."""
        self._whole = usage

    def _counted(self) -> Usage | None:
        if isinstance(self._whole, bytes):
            self._whole = _decoded(self._whole)
        if self._whole is not None or not self._by_choice:
            return self._whole
        prompts = {index // self._per_prompt: usage for index, usage in self._by_choice.items()}
        return Usage(
            prompt_tokens=sum(usage.prompt_tokens for usage in prompts.values()),
            completion_tokens=sum(usage.completion_tokens for usage in self._by_choice.values()),
            cached_tokens=sum(usage.cached_tokens for usage in prompts.values()),
            reasoning_tokens=sum(usage.reasoning_tokens for usage in self._by_choice.values()),
            cache_write_tokens=sum(usage.cache_write_tokens for usage in prompts.values()),
            draft_tokens=sum(usage.draft_tokens for usage in self._by_choice.values()),
            accepted_draft_tokens=sum(usage.accepted_draft_tokens for usage in self._by_choice.values()),
        )


def _decoded(usage: bytes) -> Usage | None:
    """None when the engine wrote nonsense: nothing is known then, and the stream's own failure is told elsewhere."""
    try:
        return usage_of(msgspec.json.decode(usage))
    except (msgspec.DecodeError, EngineFailed):
        return None
