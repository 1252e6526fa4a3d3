"""Draws the requests of a canary's two arms, in sessions that differ in time, length and latency.

Latencies are lognormal, and part of their variance belongs to the session, which may have long prompts or a distant
client.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

TTFT_MEDIAN_MS, ITL_MEDIAN_MS = 400.0, 60.0
SIGMA = 0.5
"""Standard deviation of the logarithm: the p99 is 3.2 times the median."""
ERRORS = 0.001
"""Share of the baseline's requests that fail."""
PROMISED_TTFT_MS, PROMISED_ITL_MS = 1_400.0, 250.0
"""Kept by 99 % of the baseline's requests."""
STALLS_PER_HOUR, STALL_S, STALL_MS = 2.0, 10.0, 3_000.0
"""Stalls of a replica, their duration, and what each adds to the time to first token of its sessions."""
GAP_S = 30.0
"""Mean time between a session's requests."""
_Z95, _Z99 = 1.6448536269514722, 2.3263478740408408


@dataclasses.dataclass(frozen=True)
class Change:
    """The candidate's differences from the baseline."""

    name: str = "unchanged"
    ttft: float = 1.0
    """Factor of all its times to first token."""
    tail: float = 1.0
    """Factor of those at p99 and above; none below p95, and linear in between."""
    errors: float = 0.0
    """Share of requests that fail in addition to the baseline's."""
    itl: float = 1.0
    """Factor of all its longest gaps."""
    broken: float = 0.0
    """Share of requests that break an objective in addition to the baseline's, for any cause."""


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The volume of the requests and their correlation."""

    name: str
    rates: tuple[float, ...]
    """Requests per second in the candidate's arm, for each stage; the control's has the same."""
    hours: float
    requests_per_session: float = 4.0
    session_share: float = 0.3
    """The session's share of the variance of a latency's logarithm."""
    replicas: int = 0
    """Replicas of each arm, which stall independently; 0 if none stalls."""


@dataclasses.dataclass(frozen=True)
class Stream:
    """Requests of both arms as the last stage would have them, in order of their ends."""

    second: Floats
    candidate: npt.NDArray[np.bool_]
    unit: npt.NDArray[np.int64]
    level: Floats
    """Level of each request's session, which takes part from the stage whose rate is this share of the last one's."""
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
    # good requests break an objective until their share of all requests is `broken`
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
    """The candidate's times to first token, from the baseline's."""
    p95_ms, high_ms = TTFT_MEDIAN_MS * math.exp(SIGMA * _Z95), p99_ms(TTFT_MEDIAN_MS)
    into_tail = np.clip((ttft_ms - p95_ms) / (high_ms - p95_ms), 0.0, 1.0)
    return ttft_ms * change.ttft * (1 + (change.tail - 1) * into_tail)


def p99_ms(median_ms: float) -> float:
    """The baseline's true p99."""
    return median_ms * math.exp(SIGMA * _Z99)


def _latencies(
    median_ms: float, owner: npt.NDArray[np.int64], sessions: int, session_share: float, rng: np.random.Generator
) -> Floats:
    of_session = math.sqrt(session_share) * rng.standard_normal(sessions)[owner]
    of_request = math.sqrt(1 - session_share) * rng.standard_normal(len(owner))
    return median_ms * np.exp(SIGMA * (of_session + of_request))


def _stalls(traffic: Traffic, second: Floats, replica: npt.NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Delay of each request in ms. replica: each request's; the two arms have different ones."""
    added = np.zeros(len(second))
    for number in range(2 * traffic.replicas):
        for begin in rng.uniform(0, traffic.hours * 3_600, rng.poisson(STALLS_PER_HOUR * traffic.hours)):
            added[(replica == number) & (second >= begin) & (second < begin + STALL_S)] = STALL_MS
    return added
