"""The usage that an engine has reported so far in one stream, from any of its events."""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import EngineFailed
from contracts.usage import EngineTiming, Usage
from engines.drivers.engine_json import decode_engine_json
from engines.drivers.engine_timing import timing_of
from engines.drivers.error_bodies import usage_of, with_drafts
from gateway.wire.chunk import BROKEN_OFF
from gateway.wire.delivered import Delivered

UNREAD_USAGES = 64
"""Limit of running usages set aside before the newest is decoded."""


class UsageTracker:
    """A lower bound of the usage after every event.

    With several choices, an event's usage counts only its own choice, and the last event, which has no choices, counts
    all. A stream that breaks off before that event has used at least the sum over its choices, with each prompt once.
    An invalid usage changes nothing: the last report remains.
    """

    __slots__ = (
        "_by_choice",
        "_choices",
        "_extension",
        "_finished",
        "_per_prompt",
        "_salted_cache",
        "_unread",
        "_whole",
        "delivered",
        "final",
        "finish_reasons",
    )

    def __init__(self, choices: int, prompts: int = 1, *, salted_cache: bool = True) -> None:
        """salted_cache: see `Capabilities.salted_cache`; without it no token is reported or priced as cached."""
        self.delivered = Delivered()
        """Text of events without a usage, which an earlier report may not include."""
        self.final = False
        """Whether the engine has reported its total usage and has sent no text since."""
        self.finish_reasons: dict[int, str] = {}
        """Finish reasons of choices, from the engine."""
        self._salted_cache = salted_cache
        self._choices = choices
        self._per_prompt = choices // prompts
        self._by_choice: dict[int, Usage] = {}
        self._finished: set[int] = set()
        """Choices that ended in an event with a usage."""
        self._whole: Usage | None = None
        self._unread: list[tuple[bytes, bytes]] = []
        """Usages not decoded yet, oldest first, each with its event."""
        self._extension: Any = None

    def passed(self, payload: bytes, usage: bytes | None) -> None:
        """Add an event of the only choice that was passed on undecoded. usage: its undecoded object, decoded if
        needed."""
        self.final = False
        if usage is None:
            self.delivered.add(payload)
            return
        self._unread.append((usage, payload))
        if len(self._unread) >= UNREAD_USAGES:
            self._read()

    def counted(self, usages: list[tuple[bytes, bytes]]) -> None:
        """Add consecutive events of the only choice by their undecoded usages, each with its event."""
        self.final = False
        self._unread += usages
        if len(self._unread) >= UNREAD_USAGES:
            self._read()

    def texts(self, insides: list[bytes]) -> None:
        """Add events of the only choice without a usage, by their texts; see `Delivered.texts`."""
        self.final = False
        self.delivered.texts(insides)

    def chunk(self, chunk: dict[str, Any]) -> None:
        """Add an event that may carry usage, or SGLang's and vLLM's additional figures. Raises EngineFailed for an
        invalid usage. A choice that was not requested is not counted: an engine could invent any number."""
        self._extension = chunk.get("sglext") or chunk.get("metrics") or self._extension
        usage, choices = chunk.get("usage"), chunk.get("choices") or []
        ended = []
        for choice in choices:
            if reason := choice.get("finish_reason"):
                ended.append(index := int(choice.get("index") or 0))
                self.finish_reasons[index] = str(reason)
        if not isinstance(usage, dict):
            if self.delivered.chunk(chunk):
                self.final = False
            return
        reported = usage_of(usage)
        if self._choices > 1 and len(choices) == 1:
            if (index := int(choices[0].get("index") or 0)) < self._choices:
                self._by_choice[index] = reported
        else:
            self._unread.clear()
            self._whole = reported
        # many engines send no separate usage event: the one that ends the choice has the usage
        self._finished.update(ended)
        self.final = not choices or len(self._finished) >= self._choices

    @property
    def aborted(self) -> bool:
        """Whether a choice is incomplete: the gateway or the engine stopped it."""
        return not BROKEN_OFF.isdisjoint(self.finish_reasons.values())

    @property
    def output_tokens(self) -> dict[int, int]:
        """Generated tokens by choice, as far as events report them separately."""
        return {index: usage.completion_tokens for index, usage in self._by_choice.items()}

    @property
    def total(self) -> Usage | None:
        """Usage of all choices; None before the first report."""
        usage = self._counted()
        if usage is None:
            return None
        if not self._salted_cache:
            usage = msgspec.structs.replace(usage, cached_tokens=0)
        return usage if self._extension is None else with_drafts(usage, self._extension)

    @property
    def timing(self) -> EngineTiming | None:
        """Parts of the time before the first token, from the engine; None if it reports none."""
        return timing_of(self._extension)

    def tell(self, usage: Usage) -> None:
        """Replace the report of an engine that has not counted everything with our own count."""
        self._unread.clear()
        self._whole = usage

    def _read(self) -> None:
        """Keep the newest valid usage; it does not include the text of later events."""
        while self._unread:
            usage, payload = self._unread.pop()
            if (reported := _decoded(usage)) is not None:
                self._whole = reported
                self._unread.clear()
            else:
                self.delivered.add(payload)

    def _counted(self) -> Usage | None:
        self._read()
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
    """The usage; None if it is invalid."""
    try:
        return usage_of(decode_engine_json(usage, object, "The engine's running usage cannot be read."))
    except EngineFailed:
        return None
