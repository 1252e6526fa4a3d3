"""How long requests wait for one of several servers, on average and at a percentile.

M/M/c exactly (Erlang 1917). Where times of arrival or service vary more or less than exponential ones, waits are
stretched by the mean of both squared coefficients of variation (Allen and Cunneen; for one server and mean waits
Kingman's formula). A percentile is ln(1 / (1 − q)) means of an exponential tail, so a p99 is 4.6 of them, not one.
"""

from __future__ import annotations

import math

P99 = 0.99


def sojourn_mean_s(arrivals_per_s: float, served_per_s: float) -> float:
    """Waiting and service of one server, M/M/1: 1 / (μ − λ). Infinite where it cannot keep up."""
    spare = served_per_s - arrivals_per_s
    return 1 / spare if spare > 0 else math.inf


def sojourn_quantile_s(arrivals_per_s: float, served_per_s: float, quantile: float = P99) -> float:
    """The same at a percentile; the time is exponential: ln(1 / (1 − q)) / (μ − λ)."""
    return -math.log1p(-quantile) * sojourn_mean_s(arrivals_per_s, served_per_s)


def waiting_share(servers: int, busy: float) -> float:
    """Erlang C: which part of the requests waits at all. busy: arrivals per second times seconds of service."""
    if busy >= servers:
        return 1.0
    blocked = 1.0
    for server in range(1, servers + 1):
        blocked = busy * blocked / (server + busy * blocked)  # Erlang B, which cannot overflow
    return blocked / (1 - busy / servers * (1 - blocked))


def wait_mean_s(servers: int, arrivals_per_s: float, service_s: float, variability: float = 1.0) -> float:
    """Before service begins. variability: mean of the squared coefficients of variation of arrivals and service."""
    busy = arrivals_per_s * service_s
    if busy >= servers:
        return math.inf
    return waiting_share(servers, busy) * service_s / (servers - busy) * variability


def wait_quantile_s(
    servers: int, arrivals_per_s: float, service_s: float, variability: float = 1.0, quantile: float = P99
) -> float:
    """The wait that this part of the requests does not exceed; 0 where fewer wait at all."""
    busy = arrivals_per_s * service_s
    if busy >= servers:
        return math.inf
    waiting = waiting_share(servers, busy)
    if waiting <= 1 - quantile:
        return 0.0
    return math.log(waiting / (1 - quantile)) * service_s / (servers - busy) * variability


def servers_for(
    arrivals_per_s: float, service_s: float, wait_s: float, variability: float = 1.0, quantile: float = P99
) -> int:
    """The fewest servers whose wait at the percentile is within `wait_s` (at least 0)."""
    least = math.floor(arrivals_per_s * service_s) + 1

    def enough(servers: int) -> bool:
        return wait_quantile_s(servers, arrivals_per_s, service_s, variability, quantile) <= wait_s

    step = 1
    while not enough(least + step - 1):
        step *= 2
    low, high = least + step // 2, least + step - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
