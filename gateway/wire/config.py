"""Settings of one request's limits."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed
from engines.tokenizer.json_value import MAX_DEPTH, MAX_VALUES


class RequestConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one inference request's size in memory. Text is limited only by `max_body_bytes`, because JSON's
    structure costs memory and time far beyond its bytes."""

    max_depth: Fixed[Annotated[int, Meta(ge=8, le=256)]] = MAX_DEPTH
    """Levels of nesting in a body, and in the JSON inside a tool call's `arguments`."""
    max_containers: Annotated[int, Meta(ge=100, le=1_000_000)] = 20_000
    """Maximum number of objects and lists in a body, including those inside tool calls' `arguments`. Each one takes
    microseconds of the event loop that all streams share."""
    max_values: Annotated[int, Meta(ge=1_000, le=10_000_000)] = MAX_VALUES
    """Maximum number of values and member names in a body, including token ids, and of values that a chat template
    traverses. Raise it only for models that take longer prompts as token ids."""
    max_whole_logprobs: Fixed[Annotated[int, Meta(ge=1_000, le=100_000_000)]] = 200_000
    """Maximum number of log probabilities in a response that is not streamed: choices x max_tokens x (1 +
    top_logprobs). Each takes about 80 bytes of memory, and three times that while the response is assembled."""
    organization_body_bytes: Fixed[Annotated[int, Meta(ge=1_048_576, le=1 << 40)]] = 64 * 1024 * 1024
    """Bytes of one organization's bodies in memory that have no reservation yet. Further bodies wait to be read. A
    single body is always read."""
    prepare_timeout_s: Annotated[float, Meta(gt=0, le=3_600)] = 30.0
    """Longest time from a complete body until its tokens are counted, including the wait for other long prompts."""
