"""Each cause's threshold in words: a clear cause is below its threshold, not absent.

The figures are those of the rules, so the sentences cannot differ from the verdicts.
"""

from __future__ import annotations

from control.diagnosis.findings.comparison import CHANCE, ENGINE, MEDIAN, OURS, RATIOS, TAIL_RATIO, Share
from control.diagnosis.findings.finding import Cause
from control.diagnosis.findings.rules import (
    cached_shares,
    choppy_decode,
    engine_failures,
    limits,
    long_prompts,
    platform_failures,
    queue,
    retractions,
    slow_client,
    slow_replica,
)

_MISSED = "or more requests beyond the objective than its target allows (by chance in less than one case of "
f"{1 / CHANCE:,.0f})"


def _grown(share: Share) -> str:
    return (
        f"median {RATIOS[MEDIAN]:g} times or tail {TAIL_RATIO:g} times that of the window before, by "
        f"{share.median:.0%} or {share.tail:.0%} of the objective"
    )


def _share(part: float, fewest: int) -> str:
    return f"{part:.0%} of the requests, of one model's or of one pool's, and {fewest} requests"


_OF_ENGINES, _OF_GATEWAYS = f"{_grown(ENGINE)}, {_MISSED}", f"{_grown(OURS)}, {_MISSED}"
_CACHED = f"the cached share at most {cached_shares.FALL:g} times that of the window before"
THRESHOLDS: dict[Cause, str] = {
    Cause.PLATFORM_FAILURES: _share(platform_failures.SHARE, platform_failures.FEWEST),
    Cause.RETRACTIONS: f"{retractions.SHARE:.0%} of the requests, and {retractions.FEWEST} requests",
    Cause.ENGINE_FAILURES: _share(engine_failures.SHARE, engine_failures.FEWEST),
    Cause.LIMITS: (
        f"{limits.SHARE:.0%} of the requests ({limits.ONES:.0%} where one organization is refused beyond its fair "
        f"share), and {limits.FEWEST} requests"
    ),
    Cause.NETWORK: "an audit finds that events are held back or a certificate is not accepted",
    Cause.SLOW_REPLICA: f"a median {slow_replica.RATIO:g} times that of its pool's other replicas",
    Cause.COLD_CACHE: (
        f"the cached share at most {cached_shares.COLD_FALL:g} times that of the window before in the first third, and "
        "back in the last one"
    ),
    Cause.BROKEN_PREFIX: _CACHED,
    Cause.LOST_CACHE: _CACHED,
    Cause.LONG_PROMPTS: (
        f"prompts {long_prompts.RATIO:g} times as long as before and {long_prompts.MORE_TOKENS} tokens longer, and a "
        "slower first token"
    ),
    Cause.SLOW_ARRIVAL: _OF_GATEWAYS,
    Cause.SLOW_LIMITER: _OF_GATEWAYS,
    Cause.SLOW_ROUTER: _OF_GATEWAYS,
    Cause.QUEUE: f"{_OF_ENGINES}; or shed: {_share(queue.SHED_SHARE, queue.SHED_LEAST)}",
    Cause.SLOW_PREFILL: _OF_ENGINES,
    Cause.QUEUE_OR_PREFILL: _OF_ENGINES,
    Cause.GRAMMAR: _OF_ENGINES,
    Cause.ENGINE_LINK: _OF_GATEWAYS,
    Cause.SLOW_FIRST_TOKEN: _OF_ENGINES,
    Cause.SLOW_DECODE: _OF_ENGINES,
    Cause.CHOPPY_DECODE: f"{_OF_ENGINES}; and {choppy_decode.STOPS:g} times the time of a token",
    Cause.SLOW_CLIENT: f"gateways wait {slow_client.STALL_MS:g} ms for an organization's clients to read",
    Cause.SLOW_FINISH: _grown(ENGINE),
}
