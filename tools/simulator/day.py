"""A day of a large chat product at 1/N of its size: ten million users, fifteen turns each, 3,000 tokens in and 400 out
per turn, about 5,000 requests per second at the peak.

The day's curve is a von Mises density with the peak in the evening, narrow enough that mean and peak agree with the
figures above: 1,736 and about 5,000 requests per second.
"""

from __future__ import annotations

import math

from tools.simulator.arrival import Arrival
from tools.simulator.sessions import SessionsConfig, conversations, mean_turns

USERS = 10_000_000
TURNS_PER_USER = 15
DAY_S = 86_400.0
PEAK_AT_S = 21 * 3_600.0
SHARPNESS = 1.65
"""e^k / I0(k) = 2.89, the ratio of peak to mean."""
MEAN_OF_CURVE = 1.8032
"""I0(1.65), the mean of e^(k·cos) over a day."""


def product() -> SessionsConfig:
    """Five turns a session; system prompt and history make the mean prompt about 3,000 tokens, responses 400."""
    return SessionsConfig(
        tenants=32, system_tokens=(800, 1_600), turns=(3, 7), user_tokens=180, answer_tokens=330, pause_s=60.0
    )


def requests_per_s(at_s: float, scale: float) -> float:
    """Rate at a time of day, for a product `scale` times smaller."""
    mean = USERS * TURNS_PER_USER / DAY_S / scale
    return mean * math.exp(SHARPNESS * math.cos(2 * math.pi * (at_s - PEAK_AT_S) / DAY_S)) / MEAN_OF_CURVE


def day(scale: float, begin_s: float, end_s: float, seed: int) -> list[Arrival]:
    """The requests between two times of day, for a product `scale` times smaller. `begin_s` becomes time 0."""
    config = product()
    turns = mean_turns(config)
    peak = requests_per_s(PEAK_AT_S, scale) / turns
    return list(
        conversations(lambda at_s: requests_per_s(begin_s + at_s, scale) / turns, peak, end_s - begin_s, seed, config)
    )
