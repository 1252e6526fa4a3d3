"""Folds an engine's event stream into one whole answer.

Whole answers are generated as streams too: a client that leaves is then metered by the same rule as one that streams.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import SlipstreamError, UnsupportedField
from contracts.usage import Usage
from engines.answers import engine_error
from gateway.openai.best import BestOf
from gateway.relay import EventSplitter, ReadError, decoded, error_in, has_text, usage_json
from gateway.usage_seen import UsageSeen

CHOICE_LISTS = ("content", "refusal")


class Collector:
    """State of one attempt's whole answer. Has the parts of `Relay` that the exchange needs."""

    def __init__(
        self,
        response_id: str,
        model: str,
        choices: int,
        prompts: int = 1,
        best_of: BestOf | None = None,
        *,
        seen: UsageSeen | None = None,
        read_error: ReadError = engine_error,
    ) -> None:
        """best_of: None: all choices are answered with. seen, read_error: as `Relay`'s."""
        self._read_error = read_error
        self._best_of = best_of
        self._id = response_id
        self._model = model
        self._expected = choices
        self._splitter = EventSplitter()
        self._choices: dict[int, dict[str, Any]] = {}
        self._chat = True
        self._created = 0
        self._usage = seen or UsageSeen(choices, prompts)
        self.events = 0
        self.text_seen = False
        self.done = False
        self.error: SlipstreamError | None = None

    @property
    def finished(self) -> bool:
        """Every choice has its finish_reason."""
        return sum(1 for choice in self._choices.values() if choice["finish_reason"]) >= self._expected

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
        for payload in self._splitter.feed(data):
            if payload == b"[DONE]":
                self.done = True
                self._require_comparable()
                continue
            self._chunk(decoded(payload))
        return b""

    def body(self) -> bytes:
        """The whole answer as JSON."""
        usage = self.usage or Usage()
        return msgspec.json.encode(
            {
                "id": self._id,
                "object": "chat.completion" if self._chat else "text_completion",
                "created": self._created,
                "model": self._model,
                "choices": self._answered(),
                "usage": usage_json(usage),
            }
        )

    def _require_comparable(self) -> None:
        """An engine that leaves log probabilities out would make the best of several any of them."""
        if self._best_of is not None and self.text_seen and not any(c["logprobs"] for c in self._choices.values()):
            self.error = self.error or UnsupportedField(
                "'best_of' above 'n' is not available for this model here: its engine tells no log probabilities to "
                "compare the choices by.",
                param="best_of",
            )

    def _answered(self) -> list[dict[str, Any]]:
        if self._best_of is None:
            return [self._choices[index] for index in sorted(self._choices)]
        return self._best_of.pick(self._choices, self._usage.output_tokens)

    def _chunk(self, chunk: dict[str, Any]) -> None:
        self.error = self.error or error_in(chunk, self._read_error)
        if self.error is not None:
            return
        if not self.events:
            self._chat = chunk.get("object") != "text_completion"
            self._created = int(chunk.get("created") or 0)
        self.events += 1
        self._usage.chunk(chunk)
        self.text_seen = self.text_seen or has_text(chunk)
        for part in chunk.get("choices") or ():
            choice = self._choice(int(part.get("index") or 0))
            if self._chat:
                _merge_delta(choice["message"], part.get("delta") or {})
                choice["logprobs"] = _merge_chat_logprobs(choice["logprobs"], part.get("logprobs"))
            else:
                choice["text"] += part.get("text") or ""
                choice["logprobs"] = _merge_text_logprobs(choice["logprobs"], part.get("logprobs"))
            choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]

    def _choice(self, index: int) -> dict[str, Any]:
        if index not in self._choices:
            content: dict[str, Any] = (
                {"message": {"role": "assistant", "content": None}} if self._chat else {"text": ""}
            )
            self._choices[index] = {"index": index, **content, "logprobs": None, "finish_reason": None}
        return self._choices[index]


def _merge_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("content", "reasoning_content", "refusal"):
        if delta.get(name) is not None:
            message[name] = (message.get(name) or "") + delta[name]
    for call in delta.get("tool_calls") or ():
        calls: list[dict[str, Any]] = message.setdefault("tool_calls", [])
        position = int(call.get("index") or 0)
        while len(calls) <= position:
            calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        target, function = calls[position], call.get("function") or {}
        target["id"] = call.get("id") or target["id"]
        target["function"]["name"] += function.get("name") or ""
        target["function"]["arguments"] += function.get("arguments") or ""


def _merge_chat_logprobs(have: dict[str, Any] | None, more: dict[str, Any] | None) -> dict[str, Any] | None:
    if not more:
        return have
    have = have or {"content": None, "refusal": None}
    for name in CHOICE_LISTS:
        if more.get(name):
            have[name] = (have.get(name) or []) + more[name]
    return have


def _merge_text_logprobs(have: dict[str, Any] | None, more: dict[str, Any] | None) -> dict[str, Any] | None:
    if not more:
        return have
    if have is None:
        return dict(more)
    return {name: (have.get(name) or []) + (more.get(name) or []) for name in {*have, *more}}
