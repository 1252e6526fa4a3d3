"""Requests of a canary's two arms, drawn: sessions that come by chance, are long by chance and differ among themselves.

Latencies are lognormal, and part of their variance belongs to the session: its prompts are long, its client is far.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

TTFT_MEDIAN_MS, ITL_MEDIAN_MS = 400.0, 60.0
SIGMA = 0.5
"""Of the logarithm: a p99 3.2 times the median."""
ERRORS = 0.001
"""Share of the baseline's requests."""
PROMISED_TTFT_MS, PROMISED_ITL_MS = 1_400.0, 250.0
"""Kept by 99 % of the baseline's requests."""
STALLS_PER_HOUR, STALL_S, STALL_MS = 2.0, 10.0, 3_000.0
"""Of a replica that stalls, how long, and what that adds to the times to first token of its sessions."""
GAP_S = 30.0
"""Between a session's requests, on average."""
_Z95, _Z99 = 1.6448536269514722, 2.3263478740408408


@dataclasses.dataclass(frozen=True)
class Change:
    """What the candidate does otherwise than the baseline."""

    name: str = "unchanged"
    ttft: float = 1.0
    """All its times to first token are so many times as long."""
    tail: float = 1.0
    """Its p99 of them and what is beyond; below p95 nothing, between them in a straight line."""
    errors: float = 0.0
    """Share of requests that fail beside the baseline's."""
    itl: float = 1.0
    """All its longest gaps are so many times as long."""
    broken: float = 0.0
    """Share of requests that break an objective beside the baseline's, for whatever cause."""


@dataclasses.dataclass(frozen=True)
class Traffic:
    """How much comes, and how it hangs together."""

    name: str
    rates: tuple[float, ...]
    """Requests per second in the candidate's arm, for each stage; the control's has the same."""
    hours: float
    requests_per_session: float = 4.0
    session_share: float = 0.3
    """Of the variance of a logarithm of latency."""
    replicas: int = 0
    """Of each arm, that stall by themselves; 0: none does."""


@dataclasses.dataclass(frozen=True)
class Stream:
    """Requests of both arms as the last stage would have them, by when they ended."""

    second: Floats
    candidate: npt.NDArray[np.bool_]
    unit: npt.NDArray[np.int64]
    level: Floats
    """Of each request's session: it takes part from the stage on whose rate is this share of the last one's."""
    ttft_ms: Floats
    itl_ms: Floats
    failed: npt.NDArray[np.bool_]
    good: npt.NDArray[np.bool_]


def draw(traffic: Traffic, change: Change, rng: np.random.Generator) -> Stream:
    """A whole rollout's requests."""
    seconds = traffic.hours * 3_600
    earlier_s = 10 * GAP_S * traffic.requests_per_session  # sessions under way are put on an arm too
    sessions = rng.poisson(2 * max(traffic.rates) / traffic.requests_per_session * (earlier_s + seconds))
    begins = rng.uniform(-earlier_s, seconds, sessions)
    lengths = rng.geometric(1 / traffic.requests_per_session, sessions)
    owner = np.repeat(np.arange(sessions), lengths)
    gaps = rng.exponential(GAP_S, len(owner))
    firsts = np.cumsum(lengths) - lengths
    waited = np.cumsum(gaps)
    second = begins[owner] + waited - waited[firsts][owner]
    candidate = (rng.random(sessions) < 0.5)[owner]
    ttft_ms = _latencies(TTFT_MEDIAN_MS, owner, sessions, traffic.session_share, rng)
    itl_ms = _latencies(ITL_MEDIAN_MS, owner, sessions, traffic.session_share, rng)
    ttft_ms = np.where(candidate, changed(ttft_ms, change), ttft_ms)
    itl_ms = np.where(candidate, change.itl * itl_ms, itl_ms)
    failed = rng.random(len(owner)) < ERRORS + change.errors * candidate
    ttft_ms += _stalls(traffic, second, 2 * (owner % max(1, traffic.replicas)) + candidate, rng)
    good = ~failed & (ttft_ms <= PROMISED_TTFT_MS) & (itl_ms <= PROMISED_ITL_MS)
    unit = rng.integers(0, 2**63 - 1, sessions)[owner]
    level = rng.random(sessions)[owner]
    # of those that would be good, so many that the share of all is `broken`
    good &= ~candidate | (rng.random(len(owner)) >= change.broken / max(good.mean(), 0.5))
    second += ttft_ms / 1_000
    order = np.argsort(second, kind="stable")
    order = order[(second[order] >= 0) & (second[order] < seconds)]
    return Stream(
        second[order], candidate[order], unit[order], level[order], ttft_ms[order], itl_ms[order], failed[order],
        good[order],
    )  # fmt: skip


def baseline(traffic: Traffic, requests: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Latencies in ms, to first token and longest gap, of the requests before the release."""
    lengths = rng.geometric(1 / traffic.requests_per_session, requests)
    owner = np.repeat(np.arange(requests), lengths)[:requests]
    found = [
        _latencies(median, owner, requests, traffic.session_share, rng) for median in (TTFT_MEDIAN_MS, ITL_MEDIAN_MS)
    ]
    return found[0], found[1]


def changed(ttft_ms: Floats, change: Change) -> Floats:
    """The candidate's times to first token where the baseline's are these."""
    p95_ms, high_ms = TTFT_MEDIAN_MS * math.exp(SIGMA * _Z95), p99_ms(TTFT_MEDIAN_MS)
    into_tail = np.clip((ttft_ms - p95_ms) / (high_ms - p95_ms), 0.0, 1.0)
    return ttft_ms * change.ttft * (1 + (change.tail - 1) * into_tail)


def p99_ms(median_ms: float) -> float:
    """The baseline's true one."""
    return median_ms * math.exp(SIGMA * _Z99)


def _latencies(
    median_ms: float, owner: npt.NDArray[np.int64], sessions: int, session_share: float, rng: np.random.Generator
) -> Floats:
    of_session = math.sqrt(session_share) * rng.standard_normal(sessions)[owner]
    of_request = math.sqrt(1 - session_share) * rng.standard_normal(len(owner))
    return median_ms * np.exp(SIGMA * (of_session + of_request))


def _stalls(traffic: Traffic, second: Floats, replica: npt.NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """What is added to each request in ms. replica: of each, unlike in the two arms."""
    added = np.zeros(len(second))
    for number in range(2 * traffic.replicas):
        for begin in rng.uniform(0, traffic.hours * 3_600, rng.poisson(STALLS_PER_HOUR * traffic.hours)):
            added[(replica == number) & (second >= begin) & (second < begin + STALL_S)] = STALL_MS
    return added
