"""Waiting times against queues that are played through, and against each other."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning.queueing import (
    servers_for,
    sojourn_mean_s,
    sojourn_quantile_s,
    wait_mean_s,
    wait_quantile_s,
    waiting_share,
)

REQUESTS = 40_000
SEEDS = range(6)


def played(servers: int, busy_share: float, scv: float) -> tuple[float, float, float]:
    """Mean wait, p99 wait and share that waits at all of one queue before servers of 1 s, over some seeds.

    scv: of arrivals and of service, gamma distributed.
    """
    runs = [played_once(servers, busy_share, scv, seed) for seed in SEEDS]
    mean, p99, share = (sum(values) / len(runs) for values in zip(*runs, strict=True))
    return mean, p99, share


def played_once(servers: int, busy_share: float, scv: float, seed: int) -> tuple[float, float, float]:
    """One such queue: first come, first served."""
    source = random.Random(seed)
    shape = 1 / scv
    free = [0.0] * servers
    waits: list[float] = []
    now = 0.0
    for _ in range(REQUESTS):
        now += source.gammavariate(shape, scv / (servers * busy_share))
        begins = max(now, heapq.heappop(free))
        heapq.heappush(free, begins + source.gammavariate(shape, scv))
        waits.append(begins - now)
    waits = sorted(waits[REQUESTS // 10 :])
    return (
        sum(waits) / len(waits),
        waits[int(0.99 * len(waits))],
        sum(wait > 1e-12 for wait in waits) / len(waits),
    )


@pytest.mark.parametrize(("servers", "busy_share"), [(1, 0.6), (4, 0.7), (8, 0.8)])
def test_random_arrivals_and_service_wait_as_computed(servers: int, busy_share: float) -> None:
    mean, p99, share = played(servers, busy_share, 1.0)
    arrivals = servers * busy_share
    assert waiting_share(servers, arrivals) == pytest.approx(share, rel=0.05)
    assert wait_mean_s(servers, arrivals, 1.0) == pytest.approx(mean, rel=0.1)
    assert wait_quantile_s(servers, arrivals, 1.0) == pytest.approx(p99, rel=0.1)


@pytest.mark.parametrize(("servers", "scv"), [(1, 2.0), (8, 2.0), (1, 0.5), (8, 0.5)])
def test_more_or_less_variable_ones_about_so(servers: int, scv: float) -> None:
    """An approximation: it is told to a quarter."""
    mean, p99, _ = played(servers, 0.85, scv)
    assert wait_mean_s(servers, servers * 0.85, 1.0, scv) == pytest.approx(mean, rel=0.25)
    assert wait_quantile_s(servers, servers * 0.85, 1.0, scv) == pytest.approx(p99, rel=0.25)


def test_one_server_is_the_closed_form() -> None:
    """Sojourn of M/M/1: its wait and its service together, 1 / (μ − λ) on average."""
    assert wait_mean_s(1, 0.6, 1.0) + 1.0 == pytest.approx(sojourn_mean_s(0.6, 1.0))
    # P(W > t) = ρ e^(−(μ−λ)t)
    assert wait_quantile_s(1, 0.6, 1.0) == pytest.approx(math.log(60) / 0.4)
    assert sojourn_mean_s(1.0, 1.0) == wait_mean_s(1, 1.0, 1.0) == math.inf


loads = st.floats(0.01, 200)
services = st.floats(0.001, 5)
budgets = st.floats(0, 10)
variabilities = st.floats(0.1, 10)


@given(loads, services, budgets, variabilities)
def test_the_fewest_servers_are_enough_and_one_less_is_not(
    arrivals_per_s: float, service_s: float, wait_s: float, variability: float
) -> None:
    servers = servers_for(arrivals_per_s, service_s, wait_s, variability)
    assert wait_quantile_s(servers, arrivals_per_s, service_s, variability) <= wait_s
    if servers > 1:
        assert wait_quantile_s(servers - 1, arrivals_per_s, service_s, variability) > wait_s


@given(loads, services, budgets, variabilities, st.floats(1, 3))
def test_more_load_longer_service_or_less_patience_never_needs_fewer(
    arrivals_per_s: float, service_s: float, wait_s: float, variability: float, factor: float
) -> None:
    servers = servers_for(arrivals_per_s, service_s, wait_s, variability)
    assert servers_for(arrivals_per_s * factor, service_s, wait_s, variability) >= servers
    assert servers_for(arrivals_per_s, service_s * factor, wait_s, variability) >= servers
    assert servers_for(arrivals_per_s, service_s, wait_s / factor, variability) >= servers
    assert servers_for(arrivals_per_s, service_s, wait_s, variability * factor) >= servers


@given(loads, services)
def test_a_p99_is_at_least_the_mean_and_never_less_than_with_more_servers(
    arrivals_per_s: float, service_s: float
) -> None:
    least = math.floor(arrivals_per_s * service_s) + 1
    waits = [wait_quantile_s(servers, arrivals_per_s, service_s) for servers in (least, least + 1, least + 5)]
    assert waits == sorted(waits, reverse=True)
    assert sojourn_quantile_s(0.5, 1.0) == pytest.approx(math.log(100) * sojourn_mean_s(0.5, 1.0))
