"""What the tools have in common: whom they ask, how they are called, and what they say."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

REQUESTS, STREAMS, INPUT_TOKENS, OUTPUT_TOKENS = 24, 4, 64, 16


class Endpoint(enum.Enum):
    """Of the public API, by its path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"


class Target(msgspec.Struct, frozen=True):
    """What a run asks. tokenizer: a folder with the model's."""

    url: str
    key: str
    endpoint: Endpoint
    model: str
    tokenizer: Path


class Figures(msgspec.Struct, frozen=True):
    """What a tool says at its end. Tokens are of the requests that it counts as completed."""

    completed: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    ttft_p50_ms: float
    itl_p50_ms: float
    output_tokens_per_s: float


class Tool(msgspec.Struct, frozen=True):
    """One tool.

    arguments: its command behind the environment's `bin/`, run in an empty folder. read: what it left in that folder.
    environment: over ours; None unsets. warm_ups: requests that it sends before those that it counts.
    prompt_from_server: it takes the prompt's tokens from the server's usage, and so counts the chat template's too.
    """

    name: str
    arguments: Callable[[Target], tuple[str, ...]]
    read: Callable[[Path], Figures]
    environment: Callable[[Target], Mapping[str, str | None]]
    warm_ups: int
    prompt_from_server: bool
