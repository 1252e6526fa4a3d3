"""Folds an engine's event stream into one whole answer.

Whole answers are generated as streams too: a client that leaves is then metered by the same rule as one that streams.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import InvalidField, SlipstreamError, UnsupportedField
from contracts.generation import Generation, TextPrompt
from contracts.usage import Usage
from engines.drivers.error_bodies import engine_error
from engines.http.event_splitter import MAX_EVENT_BYTES, EventSplitter
from gateway.wire.chunk import (
    LESSONS,
    ReadError,
    created_of,
    decoded,
    error_in,
    has_text,
    learned,
    require_asked,
)
from gateway.wire.openai.best_of import BestOf
from gateway.wire.openai.whole_choice import WholeChoice
from gateway.wire.usage_json import usage_json
from gateway.wire.usage_tracker import UsageTracker

MOST_ECHOED = MAX_EVENT_BYTES // 128
"""Log probabilities of one event: each takes up to about 128 bytes as engines write them."""


def require_room(generation: Generation, prompt_tokens: int, most: int) -> None:
    """Raises InvalidField when a whole answer could hold more than `most` log probabilities: unlike a stream's, they
    all wait in memory for the last; and when those of an echoed prompt, which engines send in one event, would not fit
    one. prompt_tokens: of all prompts together."""
    alternatives, prompt = generation.sampling.logprobs, generation.prompt
    if alternatives is None:
        return
    if isinstance(prompt, TextPrompt) and prompt.echo:
        longest = max(prompt_tokens if isinstance(one, str) else len(one) for one in prompt.prompts)
        if longest * (1 + alternatives) > MOST_ECHOED:
            raise InvalidField(
                f"The log probabilities of an echoed prompt of {longest} tokens are {longest * (1 + alternatives)}; at "
                f"most {MOST_ECHOED} are given. Shorten the prompt, or leave out 'echo' or 'logprobs'.",
                param="echo",
            )
    if generation.stream:
        return
    tokens = generation.choices * generation.sampling.max_tokens
    if isinstance(prompt, TextPrompt) and prompt.echo:
        tokens += generation.sampling.n * prompt_tokens
    wanted = tokens * (1 + alternatives)
    if wanted > most:
        raise InvalidField(
            f"{tokens} tokens in all choices x {1 + alternatives} log probabilities each are {wanted}; an answer that "
            f"is not streamed holds at most {most}. Lower the choices, max_tokens or logprobs, or set 'stream'.",
            param="logprobs",
        )


class Collector:
    """State of one attempt's whole answer."""

    def __init__(
        self,
        response_id: str,
        model: str,
        choices: int,
        prompts: int = 1,
        best_of: BestOf | None = None,
        *,
        seen: UsageTracker | None = None,
        read_error: ReadError = engine_error,
        chat: bool = True,
        service_tier: str | None = None,
        forced_call: bool = False,
    ) -> None:
        """best_of: None: all choices are returned. seen, read_error: see `Relay`. chat: the default until the engine's
        first event. service_tier: named in the response; None: left out. forced_call: see `openai_reason`."""
        self._forced_call = forced_call
        self._service_tier = {} if service_tier is None else {"service_tier": service_tier}
        self._read_error = read_error
        self._best_of = best_of
        self._id = response_id
        self._model = model
        self._expected = choices
        self._splitter = EventSplitter()
        self._choices: dict[int, WholeChoice] = {}
        self._ended: set[int] = set()
        """Choices that have their finish_reason."""
        self._repeated_text = ""
        """The text that grows with each usual event."""
        self._lessons = LESSONS if choices == 1 and best_of is None else 0
        self._chat = chat
        self._created = 0
        self._usage = seen or UsageTracker(choices, prompts)
        self.events = 0
        self.text_seen = False
        self.done = False
        self.satisfied = False
        """The response was cut: otherwise clients get all of the engine's output."""
        self.error: SlipstreamError | None = None

    def cut(self) -> None:
        self.satisfied = not self.finished
        self._splitter.repeated = None

    @property
    def characters(self) -> int | None:
        """Characters of the first choice; None if the best of several are returned."""
        first = self._choices.get(0)
        return None if first is None or self._best_of is not None else first.characters

    @property
    def text(self) -> str | None:
        """Text of the first choice; None if the best of several are returned."""
        first = self._choices.get(0)
        return None if first is None or self._best_of is not None else first.text

    @property
    def finished(self) -> bool:
        """Every choice has its finish_reason."""
        return len(self._ended) >= self._expected

    @property
    def complete(self) -> bool:
        """The engine ended as it should."""
        return self.finished and self.error is None

    @property
    def usage(self) -> Usage | None:
        """What the engine has reported so far, all choices together, or None."""
        return self._usage.total

    def feed(self, data: bytes) -> bytes:
        """Takes engine bytes; never has anything to send before the end."""
        for payload in self._splitter.runs(data):
            if isinstance(payload, list):
                self.events += len(payload)
                self._usage.texts(payload)
                self._choices[0].extend(self._repeated_text, payload)
            elif payload == b"[DONE]":
                self.done = True
                self._require_comparable()
            else:
                self._splitter.repeated = None
                self._chunk(decoded(payload))
                if self._lessons:
                    self._learn_repeated(payload)
        return b""

    def _learn_repeated(self, payload: bytes) -> None:
        """Have the splitter recognize the events that differ from this one in their text only, and only extend the
        choice by it."""
        if self.satisfied or self.error is not None or not self.text_seen or self.finished:
            return
        if (usual := learned(payload)) is not None:
            self._lessons -= 1
            self._repeated_text, self._splitter.repeated = usual

    def finish(self) -> bytes:
        """The whole answer as JSON."""
        usage = self.usage or Usage()
        return msgspec.json.encode(
            {
                "id": self._id,
                "object": "chat.completion" if self._chat else "text_completion",
                "created": self._created,
                "model": self._model,
                **self._service_tier,
                "choices": self._answered(),
                "usage": usage_json(usage),
            }
        )

    def _require_comparable(self) -> None:
        """Refuse engines without log probabilities: the choice among several would be arbitrary."""
        if self._best_of is not None and self.text_seen and not any(c.has_logprobs for c in self._choices.values()):
            self.error = self.error or UnsupportedField(
                "'best_of' above 'n' is not available for this model here: its engine returns no log probabilities to "
                "compare the choices by.",
                param="best_of",
            )

    def _answered(self) -> list[dict[str, Any]]:
        if self.satisfied:
            for index in range(self._expected):
                self._choice(index).end()
                self._ended.add(index)
        choices = {index: self._choices[index].json() for index in sorted(self._choices)}
        if self._best_of is None:
            return list(choices.values())
        return self._best_of.pick(choices, self._usage.output_tokens)

    def _chunk(self, chunk: dict[str, Any]) -> None:
        self.error = self.error or error_in(chunk, self._read_error)
        if self.error is not None:
            return
        require_asked(chunk, self._expected)
        if not self.events:
            self._chat = chunk.get("object") != "text_completion"
            self._created = created_of(chunk)
        self.events += 1
        self._usage.chunk(chunk)
        if self.satisfied:
            return
        self.text_seen = self.text_seen or has_text(chunk)
        for part in chunk.get("choices") or ():
            index = int(part.get("index") or 0)
            choice = self._choice(index)
            choice.add(part)
            if choice.finish_reason:
                self._ended.add(index)

    def _choice(self, index: int) -> WholeChoice:
        if index not in self._choices:
            self._choices[index] = WholeChoice(index, chat=self._chat, forced_call=self._forced_call)
        return self._choices[index]
