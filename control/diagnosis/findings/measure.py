"""What is measured of a request, one distribution each. Names stand in the admin API's answers."""

from __future__ import annotations

from enum import StrEnum


class Measure(StrEnum):
    """Milliseconds, unless the name ends with `tokens`."""

    TTFT = "ttft"
    """Arrival until the first generated text left the gateway."""
    TPOT = "tpot"
    """Mean time of a token behind the first one."""
    LONGEST_GAP = "longest_gap"
    """Between two of the engine's tokens."""
    AUTH = "auth"
    LIMIT = "limit"
    ROUTE = "route"
    WAIT = "wait"
    """Before any compute: in the router's queue, and in the engine's where it tells."""
    PREFILL = "prefill"
    """As the engine tells it."""
    ENGINE_UNSPLIT = "engine_unsplit"
    """Until the engine's first event, where it tells neither its queue nor its prefill."""
    GRAMMAR = "grammar"
    """Until the grammar that the output must keep was compiled, as the engine tells it; 0 of requests without one."""
    ENGINE_LINK = "engine_link"
    """The same less the engine's own queue, prefill and grammar: the way there and back, and its front end."""
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
"""What the time to first token is the sum of."""
