"""One generation request, independent of any wire format: the prompt, the caller, the tier.

The gateway decodes a client's body into a `Generation`; a driver builds the engine's request from it. Client input
reaches an engine only through these fields.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from contracts.adapter import Adapter

BACKGROUND_PRIORITY = -1_000
"""Priority of background work that no client waits for."""


class Tier(StrEnum):
    """The two promises a deployment makes."""

    AUTOCOMPLETE = "autocomplete"
    CHAT = "chat"


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request. All three ids are UUIDs in text form, taken from the key and never from the request."""

    organization_id: str
    project_id: str
    key_id: str


class ChatPrompt(msgspec.Struct, frozen=True):
    """A conversation. Messages, tools and formats are validated JSON values in the OpenAI shape."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    template_kwargs: dict[str, Any] | None = None
    """Validated variables for the chat template; only for dialects that take them."""
    merged: int = 0
    """Number of the client's leading messages that were merged into the first one, minus one."""


class TextPrompt(msgspec.Struct, frozen=True):
    """One or more texts to continue, or the two sides of a gap when `suffix` is given (one prompt only).

    prompts: text, or token ids. When the gateway has encoded the text, `prompts` holds ids; for a gap they are the ids
    of the whole template, `suffix` is then None and `filled_gap` is True. begins_with: text that the output must begin
    with, in any tokens; empty for none. It was cut off the prompt's end and is not part of the response.
    """

    prompts: tuple[str | tuple[int, ...], ...]
    suffix: str | None = None
    filled_gap: bool = False
    echo: bool = False
    begins_with: str = ""


def opening_of(prompt: ChatPrompt | TextPrompt) -> str:
    """The text that the output must begin with; empty if it may begin with any."""
    return prompt.begins_with if isinstance(prompt, TextPrompt) else ""


class Sampling(msgspec.Struct, frozen=True):
    """The sampling parameters. `max_tokens` is always set: it is both the reservation and the engine's limit. A field
    is None if neither client nor gateway sets it; the engine's default then applies."""

    max_tokens: int
    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: tuple[str, ...] = ()
    min_tokens: int = 0
    """Number of tokens before which no end token or stop id may end a text; only for dialects that support it. Stop
    texts may still end it earlier."""
    stop_ids: tuple[int, ...] = ()
    """Token ids that end a text, in addition to the model's own end tokens; only for dialects that take them."""
    logit_bias: dict[str, float] | None = None
    logprobs: int | None = None
    """Number of alternatives per position; 0 for the chosen token alone, None for no log probabilities."""
    best: int | None = None
    """Number of the `n` choices of a prompt to return, the likeliest per token; None for all. Completions only, never
    streamed. All `n` are reserved, generated and counted."""
    engine_parameters: dict[str, Any] | None = None
    """Validated parameters of the engine's own API, by its names; only parameters that its dialect or pool takes."""


class Bootstrap(msgspec.Struct, frozen=True):
    """The meeting point of a pair's two engines for one request."""

    host: str
    """Host of the prefill engine."""
    port: int
    room: int
    """Random number below 2**63, drawn for each attempt so that no two requests share one."""


class Generation(msgspec.Struct, frozen=True):
    """One generation request, as the gateway gives it to a driver."""

    request_id: str
    """The gateway's id, minted per request; also the engine's id for it, so that it can be aborted."""
    caller: Caller
    tier: Tier
    model: str
    """The model's public name."""
    prompt: ChatPrompt | TextPrompt
    sampling: Sampling
    stream: bool = False
    include_usage: bool = False
    """The client requested the usage event at the end of its stream."""
    priority: int = 0
    """The engine serves higher priorities first; below 0 is background work, which yields to every other request."""
    cache_salt: str = ""
    """Separates one tenant's prefix cache from another's; set by the gateway, never by the client."""
    adapter: Adapter | None = None
    """The tenant's adapter of the model; None for the model alone."""
    bootstrap: Bootstrap | None = None
    """The meeting point for both engines of a pair; None if one engine serves the whole request."""
    start_within_s: float | None = None
    """Longest wait in the engine's own queue, for engines whose API has such a field; None for no limit."""
    no_drafts: bool = False
    """Whether the engine should draft no tokens, if its dialect supports the flag. The text is the same either way."""

    @property
    def public_model(self) -> str:
        """The public name of the model, or of its adapter, that answers."""
        return self.model if self.adapter is None else self.adapter.public_name

    @property
    def choices(self) -> int:
        """Number of choices in the response: n for every prompt."""
        prompts = len(self.prompt.prompts) if isinstance(self.prompt, TextPrompt) else 1
        return self.sampling.n * prompts
