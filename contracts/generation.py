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
    """The caller. All three are UUIDs in text form, taken from the key and never from the request."""

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
    """Variables for the chat template, checked; only for dialects that take them."""
    merged: int = 0
    """Leading messages of the client that the first one was merged of, less one."""


class TextPrompt(msgspec.Struct, frozen=True):
    """One or more texts to continue, or the two sides of a gap when `suffix` is given (one prompt only).

    prompts: text, or token ids. When the gateway has encoded the text, `prompts` holds ids; for a gap they are the ids
    of the whole template, `suffix` is then None and `filled_gap` is True. begins_with: text that the output must begin
    with, in any tokens; empty: none. It was cut off the prompt's end, and is no part of the response.
    """

    prompts: tuple[str | tuple[int, ...], ...]
    suffix: str | None = None
    filled_gap: bool = False
    echo: bool = False
    begins_with: str = ""


def opening_of(prompt: ChatPrompt | TextPrompt) -> str:
    """The text that the output must begin with; empty: it may begin with any."""
    return prompt.begins_with if isinstance(prompt, TextPrompt) else ""


class Sampling(msgspec.Struct, frozen=True):
    """The choice of tokens. `max_tokens` is always set: it is both the reservation and the engine's limit. None:
    neither client nor gateway sets the field, and the engines' own defaults apply."""

    max_tokens: int
    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: tuple[str, ...] = ()
    min_tokens: int = 0
    """Tokens before which no end token or stop id may end a text; only for dialects that can keep it. Stop texts end it
    nevertheless."""
    stop_ids: tuple[int, ...] = ()
    """Token ids that end a text, in addition to the model's own end tokens; only for dialects that take them."""
    logit_bias: dict[str, float] | None = None
    logprobs: int | None = None
    """Number of alternatives per position; 0 is the chosen token alone; None is off."""
    best: int | None = None
    """Number of the `n` choices of a prompt to return, the likeliest per token; None: all. Completions only, never
    streamed. All `n` are reserved, generated and counted."""
    engine_parameters: dict[str, Any] | None = None
    """Parameters of the engine's own API, by its names, checked; only those that its dialect or pool takes."""


class Bootstrap(msgspec.Struct, frozen=True):
    """The meeting point of a pair's two engines for one request."""

    host: str
    """Host of the prefill engine."""
    port: int
    room: int
    """Drawn for each attempt, so that no two requests meet: below 2**63."""


class Generation(msgspec.Struct, frozen=True):
    """The prompt, the caller, the tier."""

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
    """For the engine: higher first; below 0 is background work, which yields to every other request."""
    cache_salt: str = ""
    """Separates one tenant's prefix cache from another's; set by the gateway, never by the client."""
    adapter: Adapter | None = None
    """The tenant's adapter of the model; None: the model alone."""
    bootstrap: Bootstrap | None = None
    """For both engines of a pair; None: one engine does it all."""
    start_within_s: float | None = None
    """Longest wait in the engine's own queue, for engines whose API has such a field; None: no limit."""
    no_drafts: bool = False
    """The engine should draft no tokens for it, where its dialect supports the flag. The text is the same either
    way."""

    @property
    def public_model(self) -> str:
        """The public name of the model, or of its adapter, that answers."""
        return self.model if self.adapter is None else self.adapter.public_name

    @property
    def choices(self) -> int:
        """Number of choices in the response: n for every prompt."""
        prompts = len(self.prompt.prompts) if isinstance(self.prompt, TextPrompt) else 1
        return self.sampling.n * prompts
