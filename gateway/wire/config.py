"""Settings of one request's limits."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed
from engines.tokenizer.json_value import MAX_DEPTH, MAX_VALUES


class RequestConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one inference request's size in memory. Text is free within `max_body_bytes`: JSON's structure costs
    memory and time far beyond its bytes."""

    max_depth: Fixed[Annotated[int, Meta(ge=8, le=256)]] = MAX_DEPTH
    """Levels of nesting in a body, and in the JSON inside a tool call's `arguments`."""
    max_containers: Annotated[int, Meta(ge=100, le=1_000_000)] = 20_000
    """Objects and lists in a body, those inside tool calls' `arguments` included. Each costs microseconds of the event
    loop that every stream shares."""
    max_values: Annotated[int, Meta(ge=1_000, le=10_000_000)] = MAX_VALUES
    """Values and names of members in a body, token ids included, and values in what a chat template walks through.
    Raise it only for models that take longer prompts as token ids."""
    max_whole_logprobs: Fixed[Annotated[int, Meta(ge=1_000, le=100_000_000)]] = 200_000
    """Log probabilities that an answer may hold which is not streamed: choices x max_tokens x (1 + top_logprobs). Each
    takes about 80 bytes of memory, three times that while the answer is put together."""
    organization_body_bytes: Fixed[Annotated[int, Meta(ge=1_048_576, le=1 << 40)]] = 64 * 1024 * 1024
    """Bytes of bodies that one organization may have in memory before anything is reserved for them; further ones wait
    to be read. One body is always read."""
    prepare_timeout_s: Annotated[float, Meta(gt=0, le=3_600)] = 30.0
    """Longest time from a complete body until its tokens are counted; queueing behind other long prompts is part of
    it."""
