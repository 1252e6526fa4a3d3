"""Patterns of arrival, each against the naive model of the network that makes it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slipstream.stream_audit.measured import Measured, Stall
from slipstream.stream_audit.pattern import Pattern, pattern_of
from slipstream.stream_audit.rules import delivery
from slipstream.stream_audit.timing import timing_of
from slipstream.stream_audit.verdict import Outcome
from tests.examples import examples
from tests.slipstream.stream_audit.networks import PLAN, buffer, direct, flush, jittery, measured, nagle, stream, whole

SEEDS = st.integers(0, 2**32)
FEW = examples(nightly=300)


def pattern(audit: Measured) -> Pattern:
    slow, fast = audit.slow, audit.fast
    assert slow is not None
    assert fast is not None
    round_trip_ms = audit.connection.connect_ms
    return pattern_of(timing_of(slow), timing_of(fast), slow.interval_ms, fast.interval_ms, round_trip_ms)


@FEW
@given(SEEDS)
def test_nothing_between_is_prompt(seed: int) -> None:
    assert pattern(measured(direct, seed)) is Pattern.PROMPT


@FEW
@given(SEEDS)
def test_an_answer_held_until_its_end_is_buffered(seed: int) -> None:
    assert pattern(measured(whole, seed)) is Pattern.BUFFERED


@FEW
@given(SEEDS, st.integers(600, 65_536), st.integers(18, 40), st.integers(60, 100), st.integers(70, 150))
def test_a_buffer_of_any_size_is_buffered(seed: int, size: int, slow: int, slow_ms: int, fast: int) -> None:
    """Whatever of the streams the buffer holds: all, most, or many times over."""
    network = buffer(size)
    audit = measured(slow=stream(network, slow, slow_ms, seed), fast=stream(network, fast, 10, seed))
    assert pattern(audit) is Pattern.BUFFERED


@FEW
@given(SEEDS, st.floats(0.15, 0.5))
def test_a_flush_by_the_clock_is_known_by_its_period(seed: int, period_s: float) -> None:
    assert pattern(measured(flush(period_s), seed)) is Pattern.FLUSHED_BY_TIME


@FEW
@given(SEEDS, st.floats(0.03, 0.07))
def test_a_flush_faster_than_the_slow_pace_is_told_from_nagle(seed: int, period_s: float) -> None:
    assert pattern(measured(flush(period_s), seed)) is Pattern.FLUSHED_BY_TIME


@FEW
@given(SEEDS, st.floats(0.036, 0.044))
def test_nagle_and_delayed_acknowledgements(seed: int, acknowledged_s: float) -> None:
    assert pattern(measured(nagle(acknowledged_s), seed)) is Pattern.NAGLE


@FEW
@given(SEEDS, st.floats(0.03, 0.25))
def test_nagle_over_a_long_way_is_known_by_the_round_trip(seed: int, round_trip_s: float) -> None:
    audit = measured(nagle(0.0, round_trip_s), seed, connect_ms=round_trip_s * 1e3)
    assert pattern(audit) is Pattern.NAGLE


@FEW
@given(SEEDS, st.floats(-1e6, 1e6))
def test_what_either_clock_shows_does_not_matter(seed: int, skew_s: float) -> None:
    slow = stream(flush(0.2), 24, 80, seed)
    shifted = msgspec.structs.replace(
        slow,
        received=tuple(
            msgspec.structs.replace(event, arrived_s=event.arrived_s + skew_s, sent_us=event.sent_us + 10**15)
            for event in slow.received
        ),
    )
    ours, theirs = timing_of(slow), timing_of(shifted)
    assert (ours.judged, ours.joined, ours.typical_group) == (theirs.judged, theirs.joined, theirs.typical_group)
    assert abs(ours.delay_ms(0.5) - theirs.delay_ms(0.5)) < 0.01


def interrupted(seed: int, part: float) -> Measured:
    """Seen by a client that did not run for this part of the time."""
    noise = random.Random(seed)
    stalls: list[Stall] = []
    now_s = 1.0
    while now_s < 5.0:
        lasts_s = noise.uniform(0.05, 0.3)
        stalls.append(Stall(now_s, now_s + lasts_s))
        now_s += lasts_s / part

    def late(sent_s: Sequence[float], noise: random.Random) -> list[float]:
        arrived = direct(sent_s, noise)
        return [next((each.until_s for each in stalls if each.from_s <= at <= each.until_s), at) for at in arrived]

    slow = stream(late, PLAN.slow_events, PLAN.slow_interval_ms, seed, stalls=tuple(stalls))
    fast = stream(late, PLAN.fast_events, PLAN.fast_interval_ms, seed, stalls=tuple(stalls))
    return measured(direct, seed, slow=slow, fast=fast)


@FEW
@given(SEEDS, st.floats(0.1, 0.9))
def test_a_client_that_did_not_run_is_no_fault_of_the_network(seed: int, part: float) -> None:
    """What came while it did not run is left out; when that is most of it, nothing is said."""
    assert delivery.judge(interrupted(seed, part)).outcome is not Outcome.FINDING


def test_without_its_own_stalls_a_busy_client_would_blame_the_network() -> None:
    audit = interrupted(1, 0.9)
    assert audit.slow is not None
    assert audit.fast is not None
    blind = [msgspec.structs.replace(each, stalls=()) for each in (audit.slow, audit.fast)]
    assert delivery.judge(measured(slow=blind[0], fast=blind[1])).outcome is Outcome.FINDING


@FEW
@given(SEEDS, st.floats(0.001, 0.01))
def test_jitter_is_no_pattern(seed: int, mean_s: float) -> None:
    assert pattern(measured(jittery(mean_s), seed)) is Pattern.PROMPT


def test_a_gateway_too_busy_to_keep_its_pace_is_not_measured_by() -> None:
    late = stream(direct, PLAN.fast_events, 3 * PLAN.fast_interval_ms, 1)
    verdict = delivery.judge(measured(fast=msgspec.structs.replace(late, interval_ms=PLAN.fast_interval_ms)))
    assert verdict.outcome is Outcome.NOT_ENOUGH_EVIDENCE
    assert "it is too busy for a measurement" in verdict.evidence
