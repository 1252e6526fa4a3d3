"""Waiting times against queues that are played through, and against each other."""

from __future__ import annotations

import heapq
import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tools.planning.queueing import scv_of_p99, servers_for, sojourn_p99_s, wait_mean_s, wait_quantile_s, waiting_share

REQUESTS = 40_000
SEEDS = range(6)


def played(servers: int, busy_share: float, scv: float) -> tuple[float, ...]:
    """Mean wait, p99 wait, share that waits at all, and p99 of wait and service of one queue before servers of 1 s,
    over some seeds.

    scv: of arrivals and of service, gamma distributed.
    """
    runs = [played_once(servers, busy_share, scv, seed) for seed in SEEDS]
    return tuple(sum(values) / len(runs) for values in zip(*runs, strict=True))


def played_once(servers: int, busy_share: float, scv: float, seed: int) -> tuple[float, ...]:
    """One such queue: first come, first served."""
    source = random.Random(seed)
    shape = 1 / scv
    free = [0.0] * servers
    waits: list[float] = []
    sojourns: list[float] = []
    now = 0.0
    for _ in range(REQUESTS):
        now += source.gammavariate(shape, scv / (servers * busy_share))
        begins = max(now, heapq.heappop(free))
        service = source.gammavariate(shape, scv)
        heapq.heappush(free, begins + service)
        waits.append(begins - now)
        sojourns.append(begins - now + service)
    waits = sorted(waits[REQUESTS // 10 :])
    sojourns = sorted(sojourns[REQUESTS // 10 :])
    return (
        sum(waits) / len(waits),
        waits[int(0.99 * len(waits))],
        sum(wait > 1e-12 for wait in waits) / len(waits),
        sojourns[int(0.99 * len(sojourns))],
    )


@pytest.mark.parametrize(("servers", "busy_share"), [(1, 0.6), (4, 0.7), (8, 0.8)])
def test_random_arrivals_and_service_wait_as_computed(servers: int, busy_share: float) -> None:
    mean, p99, share, sojourn = played(servers, busy_share, 1.0)
    arrivals = servers * busy_share
    assert waiting_share(servers, arrivals) == pytest.approx(share, rel=0.05)
    assert wait_mean_s(servers, arrivals, 1.0) == pytest.approx(mean, rel=0.1)
    assert wait_quantile_s(servers, arrivals, 1.0) == pytest.approx(p99, rel=0.1)
    assert sojourn_p99_s(servers, arrivals, 1.0) == pytest.approx(sojourn, rel=0.1)


@pytest.mark.parametrize(("servers", "scv"), [(1, 2.0), (8, 2.0), (1, 0.5), (8, 0.5)])
def test_more_or_less_variable_ones_about_so(servers: int, scv: float) -> None:
    """An approximation: it is told to a quarter."""
    mean, p99, _, sojourn = played(servers, 0.85, scv)
    assert wait_mean_s(servers, servers * 0.85, 1.0, scv) == pytest.approx(mean, rel=0.25)
    assert wait_quantile_s(servers, servers * 0.85, 1.0, scv) == pytest.approx(p99, rel=0.25)
    assert sojourn_p99_s(servers, servers * 0.85, 1.0, scv, scv) == pytest.approx(sojourn, rel=0.25)


def test_one_server_is_the_closed_form() -> None:
    """Sojourn of M/M/1: its wait and its service together, 1 / (μ − λ) on average."""
    assert wait_mean_s(1, 0.6, 1.0) + 1.0 == pytest.approx(1 / 0.4)
    # P(W > t) = ρ e^(−(μ−λ)t)
    assert wait_quantile_s(1, 0.6, 1.0) == pytest.approx(math.log(60) / 0.4)
    assert sojourn_p99_s(1, 0.6, 1.0) == pytest.approx(math.log(100) / 0.4)
    assert sojourn_p99_s(1, 0.0, 1.0) == pytest.approx(math.log(100))
    assert sojourn_p99_s(1, 0.0, 1.0, service_scv=0.0) == 1.0
    assert sojourn_p99_s(1, 1.0, 1.0) == wait_mean_s(1, 1.0, 1.0) == math.inf


@pytest.mark.parametrize("scv", [0.0, 0.3, 1.0, 3.0])
def test_a_spread_is_told_by_its_p99(scv: float) -> None:
    assert scv_of_p99(0.2, sojourn_p99_s(1, 0.0, 0.2, service_scv=scv)) == pytest.approx(scv)
    assert scv_of_p99(0.2, 0.1) == 0


loads = st.floats(0.01, 200)
services = st.floats(0.001, 5)
budgets = st.floats(0.01, 30)
spreads = st.floats(0, 4)


@examples(nightly=250)
@given(loads, services, budgets, spreads)
def test_the_fewest_servers_are_enough_and_one_less_is_not(
    arrivals_per_s: float, service_s: float, sojourn_s: float, scv: float
) -> None:
    servers = servers_for(arrivals_per_s, service_s, sojourn_s, 1.0, scv)
    if servers is None:
        assert sojourn_p99_s(1, 0.0, service_s, 1.0, scv) > sojourn_s
        return
    assert sojourn_p99_s(servers, arrivals_per_s, service_s, 1.0, scv) <= sojourn_s
    if servers > 1:
        assert sojourn_p99_s(servers - 1, arrivals_per_s, service_s, 1.0, scv) > sojourn_s


@examples(nightly=250)
@given(loads, services, budgets, spreads, st.floats(1, 3))
def test_more_load_longer_service_or_less_patience_never_needs_fewer(
    arrivals_per_s: float, service_s: float, sojourn_s: float, scv: float, factor: float
) -> None:
    servers = servers_for(arrivals_per_s, service_s, sojourn_s, 1.0, scv)
    for harder in (
        servers_for(arrivals_per_s * factor, service_s, sojourn_s, 1.0, scv),
        servers_for(arrivals_per_s, service_s * factor, sojourn_s, 1.0, scv),
        servers_for(arrivals_per_s, service_s, sojourn_s / factor, 1.0, scv),
        servers_for(arrivals_per_s, service_s, sojourn_s, factor, scv),
    ):
        assert harder is None or (servers is not None and harder >= servers)


@given(loads, services, spreads)
def test_more_servers_never_wait_longer(arrivals_per_s: float, service_s: float, scv: float) -> None:
    least = math.floor(arrivals_per_s * service_s) + 1
    fleets = (least, least + 1, least + 5)
    waits = [wait_quantile_s(servers, arrivals_per_s, service_s, scv) for servers in fleets]
    sojourns = [sojourn_p99_s(servers, arrivals_per_s, service_s, 1.0, scv) for servers in fleets]
    assert waits == sorted(waits, reverse=True)
    assert all(fewer >= more * (1 - 1e-9) for fewer, more in itertools.pairwise(sojourns))
