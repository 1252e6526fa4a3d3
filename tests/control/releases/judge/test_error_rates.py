"""The judge errs as seldom as it says: simulated releases with fixed seeds, looked at often, sessions clustered.

Nothing is tolerated here, so that the null hypothesis is met exactly, where the judge errs most.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import msgspec
import pytest

from control.releases.judge import Arm, Decision, Observation, Policy, State, Thresholds, Weights, observe, verdict

ALPHA = 0.2
RELEASES = 100
LOOKS = 6
QUANTILES = (0.5, 0.9)
POLICY = Policy(
    tolerance=0.0, error_tolerance=0.0, goodput_tolerance=0.0, alpha=ALPHA, promotion_alpha=ALPHA, quantiles=QUANTILES,
    tail_quantiles=(0.5, 0.9), promoted_quantile=0.9, least_units=(1,), cold_requests=0,
    weights=Weights(ttft=0.5, itl=0.0, errors=0.5, goodput=0.0, slices=0.0, reviews=0.0, shadow=0.0),
)  # fmt: skip
THRESHOLDS = Thresholds(ttft_ms=(100.0, 200.0))
Draw = Callable[[random.Random, bool], tuple[float, bool]]


def most(share: float, releases: int = RELEASES) -> int:
    """More than this many of so many events of this probability come once in a thousand times."""
    tail, count = 1.0, -1
    while tail > 0.001:
        count += 1
        tail -= math.comb(releases, count) * share**count * (1 - share) ** (releases - count)
    return count


def released(
    seed: int, draw: Draw, policy: Policy = POLICY, *, sessions: int = 150, requests: int = 6, as_units: bool = True
) -> set[Decision]:
    """The decisions met on the way. draw: ttft_ms and whether it failed, by the session's own random numbers.

    as_units=False: every request is taken for a session, as judges do that know none.
    """
    rng = random.Random(seed)
    state, met = State(), set()
    for _ in range(LOOKS):
        batch = []
        for _session in range(sessions // LOOKS):
            is_candidate, of_session = rng.random() < 0.5, random.Random(rng.random())
            arm = Arm.CANDIDATE if is_candidate else Arm.CONTROL
            for _ in range(requests):
                ttft_ms, failed = draw(of_session, is_candidate)
                number = rng.getrandbits(63)
                batch.append(Observation(arm, number, ttft_ms, None, failed, None))
            if as_units:
                batch[-requests:] = [msgspec.structs.replace(one, unit=number) for one in batch[-requests:]]
        rng.shuffle(batch)
        state = observe(state, policy, THRESHOLDS, 0, batch)
        met.add(verdict(state, policy).decision)
    return met


def clustered(of_session: random.Random, is_candidate: bool) -> tuple[float, bool]:
    """A session is slow or not, broken or not, as a whole; no arm is worse."""
    state = of_session.getstate()
    slow, broken = of_session.random() < 0.1, of_session.random() < 0.1
    of_session.setstate(state)  # the same for its next request
    return (250.0 if slow else 50.0), broken


def count(decision: Decision, draw: Draw, policy: Policy = POLICY, *, as_units: bool = True) -> int:
    return sum(decision in released(seed, draw, policy, as_units=as_units) for seed in range(RELEASES))


def test_unchanged_releases_of_clustered_sessions_are_seldom_rolled_back() -> None:
    assert count(Decision.ROLL_BACK, clustered) <= most(ALPHA)


@pytest.mark.nightly
def test_that_would_not_be_so_if_every_request_threw_a_coin() -> None:
    """The same releases, so that the test above is known to be one that can fail."""
    assert count(Decision.ROLL_BACK, clustered, as_units=False) > RELEASES / 2


def test_a_tail_at_the_margin_is_seldom_promoted_though_its_body_is_better() -> None:
    def better_body(of_session: random.Random, is_candidate: bool) -> tuple[float, bool]:
        slow = of_session.random() < 0.03
        return (250.0 if slow else 20.0 if is_candidate else 150.0), False

    assert count(Decision.PROMOTE, better_body) <= most(ALPHA)


def test_errors_at_the_tolerance_are_seldom_rolled_back() -> None:
    """The worst case of the null hypothesis: in every request of a session just so many points more."""
    policy = msgspec.structs.replace(POLICY, error_tolerance=0.02)

    def tolerated(of_session: random.Random, is_candidate: bool) -> tuple[float, bool]:
        return 50.0, of_session.random() < (0.03 if is_candidate else 0.01)

    assert count(Decision.ROLL_BACK, tolerated, policy) <= most(ALPHA)
    assert count(Decision.ROLL_BACK, tolerated) > most(ALPHA)


def test_errors_at_the_margin_are_seldom_promoted() -> None:
    """Sessions differ, and those of the worse arm leave the unbroken first: what first requests are counted for."""
    policy = msgspec.structs.replace(
        POLICY, error_margin=0.05, weights=msgspec.structs.replace(POLICY.weights, ttft=0.0, errors=0.0)
    )

    def at_margin(of_session: random.Random, is_candidate: bool) -> tuple[float, bool]:
        slow = of_session.random() < (0.0 if is_candidate else 0.2)  # its latency is proven at once
        return (250.0 if slow else 50.0), of_session.random() < (0.1 if is_candidate else 0.05)

    assert count(Decision.PROMOTE, at_margin, policy) <= most(ALPHA)


def test_a_candidate_that_is_clearly_better_or_worse_is_decided() -> None:
    def shifted(factor: float) -> Draw:
        def draw(of_session: random.Random, is_candidate: bool) -> tuple[float, bool]:
            slow = of_session.random() < 0.04 * (factor if is_candidate else 1)
            return (250.0 if slow else 50.0), False

        return draw

    policy = msgspec.structs.replace(POLICY, error_margin=0.2)
    better = [released(seed, shifted(0.1), policy) for seed in range(20)]
    worse = [released(seed, shifted(4.0), policy) for seed in range(20)]
    assert sum(Decision.PROMOTE in one and Decision.ROLL_BACK not in one for one in better) >= 16
    assert sum(Decision.ROLL_BACK in one and Decision.PROMOTE not in one for one in worse) >= 16
