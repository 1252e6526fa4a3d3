"""Folds an engine's event stream into one whole answer.

Whole answers are also generated as streams, so that a client that disconnects is metered by the rule of streams.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import InvalidField, UnsupportedField
from contracts.generation import Generation, TextPrompt
from contracts.usage import Usage
from engines.drivers.error_bodies import engine_error
from engines.http.event_splitter import MAX_EVENT_BYTES
from gateway.wire.chunk import LESSONS, ReadError
from gateway.wire.event_reader import EventReader
from gateway.wire.openai.best_of import BestOf
from gateway.wire.openai.whole_choice import WholeChoice
from gateway.wire.usage_json import usage_json
from gateway.wire.usage_tracker import UsageTracker

MAX_ECHOED = MAX_EVENT_BYTES // 128
"""Limit of the log probabilities in one event; each takes up to about 128 bytes as engines write it."""


def require_room(generation: Generation, prompt_tokens: int, most: int) -> None:
    """Raise InvalidField if a whole answer could hold more than `most` log probabilities, which all wait in memory for
    the last, or if the log probabilities of an echoed prompt would not fit in one event, as engines send them.
    prompt_tokens: of all prompts."""
    alternatives, prompt = generation.sampling.logprobs, generation.prompt
    if alternatives is None:
        return
    if isinstance(prompt, TextPrompt) and prompt.echo:
        longest = max(prompt_tokens if isinstance(one, str) else len(one) for one in prompt.prompts)
        if longest * (1 + alternatives) > MAX_ECHOED:
            raise InvalidField(
                f"An echoed prompt of {longest} tokens has {longest * (1 + alternatives)} log probabilities; at most "
                f"{MAX_ECHOED} are returned. Shorten the prompt, or leave out 'echo' or 'logprobs'.",
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


class Collector(EventReader):
    """State of one attempt's whole answer."""

    def __init__(
        self,
        response_id: str,
        model: str,
        choices: int,
        best_of: BestOf | None = None,
        *,
        seen: UsageTracker | None = None,
        read_error: ReadError = engine_error,
        chat: bool = True,
        service_tier: str | None = None,
        forced_call: bool = False,
    ) -> None:
        """best_of: None to return all choices. seen, read_error: see `Relay`. chat: the default until the engine's
        first event. service_tier: named in the response; None to omit it. forced_call: see `openai_reason`."""
        super().__init__(
            seen or UsageTracker(choices),
            read_error,
            choices,
            LESSONS if choices == 1 and best_of is None else 0,
        )
        self._forced_call = forced_call
        self._service_tier = {} if service_tier is None else {"service_tier": service_tier}
        self._best_of = best_of
        self._id = response_id
        self._model = model
        self._choices: dict[int, WholeChoice] = {}
        self._ended_choices: set[int] = set()
        """Choices that have their finish_reason."""
        self._repeated_text = ""
        """The member whose text grows with each usual event."""
        self._chat = chat

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
        return len(self._ended_choices) >= self._asked_choices

    @property
    def usage(self) -> Usage | None:
        """The engine's reported usage so far, for all choices; None before a report."""
        return self._usage.total

    def finish(self) -> bytes:
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

    def _ended(self) -> None:
        """Refuse engines without log probabilities: the choice among several would be arbitrary."""
        if self._best_of is not None and self.text_seen and not any(c.has_logprobs for c in self._choices.values()):
            self.error = self.error or UnsupportedField(
                "'best_of' above 'n' is not available for this model, because its engine returns no log "
                "probabilities by which to compare the choices. Leave 'best_of' out.",
                param="best_of",
            )

    def _answered(self) -> list[dict[str, Any]]:
        if self.satisfied:
            for index in range(self._asked_choices):
                self._choice(index).end()
                self._ended_choices.add(index)
        choices = {index: self._choices[index].json() for index in sorted(self._choices)}
        if self._best_of is None:
            return list(choices.values())
        return self._best_of.pick(choices, self._usage.output_tokens)

    def _begin(self, chunk: dict[str, Any]) -> None:
        if kind := chunk.get("object"):
            self._chat = kind != "text_completion"

    def _add(self, choice: dict[str, Any]) -> None:
        index = int(choice.get("index") or 0)
        grown = self._choice(index)
        grown.add(choice)
        if grown.finish_reason:
            self._ended_choices.add(index)

    def _extends(self, member: str) -> bool:
        self._repeated_text = member
        return True

    def _extend(self, insides: list[bytes]) -> None:
        self._choices[0].extend(self._repeated_text, insides)

    def _choice(self, index: int) -> WholeChoice:
        if index not in self._choices:
            self._choices[index] = WholeChoice(index, self._id, chat=self._chat, forced_call=self._forced_call)
        return self._choices[index]
