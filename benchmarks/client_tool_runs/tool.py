"""The interface of a load tool: its target, its command and its figures."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

REQUESTS, STREAMS, INPUT_TOKENS, OUTPUT_TOKENS = 24, 4, 64, 16


class Endpoint(enum.Enum):
    """An endpoint of the public API, with its path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"


class Target(msgspec.Struct, frozen=True):
    """The target of a run. tokenizer: a folder with the model's tokenizer."""

    url: str
    key: str
    endpoint: Endpoint
    model: str
    tokenizer: Path


class Figures(msgspec.Struct, frozen=True):
    """The figures that a tool prints at its end. Tokens are of its completed requests."""

    completed: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    ttft_p50_ms: float
    itl_p50_ms: float
    output_tokens_per_s: float


class Tool(msgspec.Struct, frozen=True):
    """One tool.

    arguments: its command in the environment's `bin/`, run in an empty folder. read: reads its result in that folder.
    environment: changes of this process's variables; None unsets one. warm_ups: requests that it sends before the
    counted ones. prompt_from_server: it takes the prompt's tokens from the server's usage, which includes the chat
    template.
    """

    name: str
    arguments: Callable[[Target], tuple[str, ...]]
    read: Callable[[Path], Figures]
    environment: Callable[[Target], Mapping[str, str | None]]
    warm_ups: int
    prompt_from_server: bool
