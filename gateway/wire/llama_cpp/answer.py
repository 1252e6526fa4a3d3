"""Responses for llama.cpp's clients.

They are compact JSON: llama.vim ignores a response with a space after a colon.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.generation import Generation
from gateway.wire.fill.transcoder import Answer


class Wanted(msgspec.Struct, frozen=True):
    """The format's own details of a request, with which it writes the answers."""

    response_fields: tuple[str, ...] = ()
    """Paths with slashes; empty for all fields."""
    several: bool = False
    """Whether several completions were requested: the answer is an array, or a stream with the events of all."""


def selected(body: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """The values at these paths, each under its whole path: `{"timings/prompt_n": 10}`. Paths without a value are left
    out. Source: `json_get_nested_values` of llama.cpp's server."""
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = body
        for step in path.split("/"):
            if not isinstance(value, dict) or step not in value:
                break
            value = value[step]
        else:
            found[path] = value
    return found


def _timing(name: str, tokens: int, took_s: float) -> dict[str, float]:
    took_ms = took_s * 1e3
    return {
        f"{name}_n": tokens,
        f"{name}_ms": took_ms,
        f"{name}_per_token_ms": took_ms / tokens if tokens else 0.0,
        f"{name}_per_second": tokens / took_s if took_s else 0.0,
    }


def _settings(generation: Generation) -> dict[str, Any]:
    """The honoured settings."""
    sampling = generation.sampling
    settings = {
        "n_predict": sampling.max_tokens,
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "stop": list(sampling.stop),
        "stream": generation.stream,
    }
    return {name: value for name, value in settings.items() if value is not None}


class Framing:
    """Writes one request's answer in llama.cpp's form."""

    def __init__(self, generation: Generation, wanted: Wanted, index: int = 0, *, truncated: bool) -> None:
        """index: the completion's, among several. truncated: see `Filled`."""
        self._generation = generation
        self._wanted = wanted
        self._index = index
        self._truncated = truncated

    def frame(self, text: str) -> bytes:
        """An event of a stream."""
        return _event({"index": self._index, "content": text, "tokens": [], "stop": False, "id_slot": -1})

    def last(self, answer: Answer) -> bytes:
        """The event that ends a stream; no `[DONE]` follows it, as in llama.cpp itself."""
        return _event(self._body(msgspec.structs.replace(answer, text="")))

    def whole(self, answer: Answer) -> bytes:
        """The body of an unstreamed response."""
        return msgspec.json.encode(self._body(answer))

    def _body(self, answer: Answer) -> dict[str, Any]:
        """A whole response, or the end of a stream if `answer.text` is empty. It omits `prompt`, which llama.cpp
        repeats: the client has it. Times are the gateway's: prefill begins with the call to the engine."""
        usage = answer.usage
        prompt_n = usage.prompt_tokens - usage.cached_tokens
        body = {
            "index": self._index,
            "content": answer.text,
            "tokens": [],
            "id_slot": -1,
            "stop": True,
            "model": self._generation.public_model,
            "tokens_predicted": usage.completion_tokens,
            "tokens_evaluated": usage.prompt_tokens,
            "generation_settings": _settings(self._generation),
            "has_new_line": "\n" in answer.text,
            "truncated": self._truncated,
            "stop_type": "limit" if answer.finish_reason == "length" else "eos",
            "stopping_word": "",
            "tokens_cached": usage.cached_tokens,
            "timings": {
                "cache_n": usage.cached_tokens,
                **_timing("prompt", prompt_n, answer.prompt_s),
                **_timing("predicted", usage.completion_tokens, answer.output_s),
            },
        }
        fields = self._wanted.response_fields
        return selected(body, fields) if fields else body


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
