"""Measures of a request, one distribution each. Their names appear in the admin API."""

from __future__ import annotations

from enum import StrEnum


class Measure(StrEnum):
    """Milliseconds, unless the name ends with `tokens`."""

    TTFT = "ttft"
    """Arrival until the first generated text left the gateway."""
    TPOT = "tpot"
    """Mean time per token after the first one."""
    LONGEST_GAP = "longest_gap"
    """The longest time between two of the engine's tokens."""
    AUTH = "auth"
    LIMIT = "limit"
    ROUTE = "route"
    WAIT = "wait"
    """Before any computation: in the router's queue, and in the engine's if the engine reports it."""
    PREFILL = "prefill"
    """From the engine's report."""
    ENGINE_UNSPLIT = "engine_unsplit"
    """Until the engine's first event, unless it reports both its queue and its prefill."""
    GRAMMAR = "grammar"
    """Until the output's grammar was compiled, from the engine's report; 0 for requests without one."""
    ENGINE_LINK = "engine_link"
    """Until the engine's first event, less its own queue, prefill and grammar: its network and its HTTP front end."""
    FIRST_TOKEN = "first_token"
    STREAM = "stream"
    CLIENT_STALL = "client_stall"
    PROMPT_TOKENS = "prompt_tokens"
    CACHED_TOKENS = "cached_tokens"
    COMPLETION_TOKENS = "completion_tokens"


BEFORE_FIRST_TOKEN = (
    Measure.AUTH,
    Measure.LIMIT,
    Measure.ROUTE,
    Measure.WAIT,
    Measure.PREFILL,
    Measure.ENGINE_UNSPLIT,
    Measure.GRAMMAR,
    Measure.ENGINE_LINK,
    Measure.FIRST_TOKEN,
)
"""Phases whose sum is the time to first token."""
