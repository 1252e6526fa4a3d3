"""How long requests wait for one of several servers, on average and at a percentile.

M/M/c is exact (Erlang 1917). If times of arrival or service vary more or less than exponential ones, waits are scaled
by the mean of both squared coefficients of variation (Allen and Cunneen; Kingman's formula for one server and mean
waits). A percentile of an exponential tail is ln(1 / (1 − q)) means, so a p99 is 4.6 means, not one.
"""

from __future__ import annotations

import math

P99 = 0.99
P99_MEANS = math.log(100)
"""How many means of an exponential time its p99 is."""
BISECTIONS = 60


def waiting_share(servers: int, busy: float) -> float:
    """Erlang C: the fraction of requests that wait. busy: arrivals per second times seconds of service."""
    if busy >= servers:
        return 1.0
    blocked = 1.0
    for server in range(1, servers + 1):
        blocked = busy * blocked / (server + busy * blocked)  # Erlang B, which cannot overflow
    return blocked / (1 - busy / servers * (1 - blocked))


def wait_mean_s(servers: int, arrivals_per_s: float, service_s: float, variability: float = 1.0) -> float:
    """Mean time before service begins. variability: mean of the squared coefficients of variation of arrivals and
    service."""
    busy = arrivals_per_s * service_s
    if busy >= servers:
        return math.inf
    return waiting_share(servers, busy) * service_s / (servers - busy) * variability


def wait_quantile_s(
    servers: int, arrivals_per_s: float, service_s: float, variability: float = 1.0, quantile: float = P99
) -> float:
    """The wait that a fraction `quantile` of the requests does not exceed; 0 if so many do not wait at all."""
    busy = arrivals_per_s * service_s
    if busy >= servers:
        return math.inf
    waiting = waiting_share(servers, busy)
    if waiting <= 1 - quantile:
        return 0.0
    return math.log(waiting / (1 - quantile)) * service_s / (servers - busy) * variability


def sojourn_p99_s(
    servers: int, arrivals_per_s: float, service_s: float, arrival_scv: float = 1.0, service_scv: float = 1.0
) -> float:
    """The p99 of waiting and service together; infinite if the servers cannot keep up, and service alone without
    arrivals.

    The wait is exponential for the requests that wait. Service is a fixed part plus an exponential one with the right
    mean and deviation. With a coefficient above 1 it is only the exponential part, whose mean is then too long, which
    is on the safe side. With exponential arrivals and service the result is exact; for one server, ln(100) / (μ − λ).
    """
    busy = arrivals_per_s * service_s
    if busy >= servers:
        return math.inf
    deviation_s = service_s * math.sqrt(service_scv)
    fixed_s = max(service_s - deviation_s, 0.0)
    waiting = waiting_share(servers, busy)
    variability = (arrival_scv + service_scv) / 2
    means_s = (deviation_s, service_s / (servers - busy) * variability)
    if not deviation_s or not means_s[1]:
        wait_s = wait_quantile_s(servers, arrivals_per_s, service_s, variability)
        return fixed_s + max(wait_s, P99_MEANS * deviation_s)
    low, high = 0.0, P99_MEANS * 2 * sum(means_s)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _exceeded(middle, waiting, *means_s) > 1 - P99 else (low, middle)
    return fixed_s + high


def scv_of_p99(mean_s: float, p99_s: float) -> float:
    """The squared coefficient of variation of a service with this mean and p99, in the model of `sojourn_p99_s`."""
    beyond = (p99_s / mean_s - 1) / (P99_MEANS - 1)
    deviation = beyond if beyond <= 1 else p99_s / mean_s / P99_MEANS
    return max(deviation, 0.0) ** 2


def _exceeded(after_s: float, waiting: float, service_mean_s: float, wait_mean_s: float) -> float:
    """P(wait + service > t), both exponential, the wait with an atom at 0."""
    alone = math.exp(-after_s / service_mean_s)
    if math.isclose(service_mean_s, wait_mean_s, rel_tol=1e-6):
        both = (1 + after_s / service_mean_s) * alone
    else:
        waited = math.exp(-after_s / wait_mean_s)
        both = (wait_mean_s * waited - service_mean_s * alone) / (wait_mean_s - service_mean_s)
    return (1 - waiting) * alone + waiting * both


def servers_for(
    arrivals_per_s: float, service_s: float, sojourn_s: float, arrival_scv: float = 1.0, service_scv: float = 1.0
) -> int | None:
    """The fewest servers that keep the p99 of waiting and service within `sojourn_s`; None if service alone
    takes longer."""
    if sojourn_p99_s(1, 0.0, service_s, arrival_scv, service_scv) > sojourn_s:
        return None
    least = math.floor(arrivals_per_s * service_s) + 1

    def enough(servers: int) -> bool:
        return sojourn_p99_s(servers, arrivals_per_s, service_s, arrival_scv, service_scv) <= sojourn_s

    step = 1
    while not enough(least + step - 1):
        step *= 2
    low, high = least + step // 2, least + step - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
