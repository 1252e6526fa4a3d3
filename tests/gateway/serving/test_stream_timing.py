"""How an attempt's tokens came, against an account made afterwards from the list of what happened."""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import pytest

from gateway.observability.latency_metrics import TOKEN_BUCKETS_S
from gateway.serving.stream_timing import GAP_S, StreamTiming


class Account(NamedTuple):
    """What is to be told of a list of events."""

    arrivals: int
    longest_gap_s: float
    gaps_over_100ms: int
    gaps_s: list[float]
    per_token_s: float | None


def account(events: list[tuple[float, str]], tokens: int) -> Account:
    """events: (seconds, what), in order of time. A gap in which the engine was held begins when it is read again."""
    gaps: list[float] = []
    arrivals = [at for at, kind in events if kind in ("text", "token")]
    if arrivals:
        events = [event for event in events if event[0] >= arrivals[0]]
    stops = [(at, kind) for at, kind in events if kind in ("text", "token", "resumed_held")]
    for (before_s, _), (at_s, kind) in itertools.pairwise(stops):
        if kind == "token":
            gaps.append(at_s - before_s)
    return Account(
        arrivals=len(arrivals),
        longest_gap_s=max(gaps, default=0.0),
        gaps_over_100ms=sum(gap_s > GAP_S for gap_s in gaps),
        gaps_s=gaps,
        per_token_s=sum(gaps) / (tokens - 1) if tokens > 1 and len(arrivals) > 1 else None,
    )


def told(events: list[tuple[float, str]]) -> StreamTiming:
    """The same events, one after the other."""
    timing = StreamTiming()
    for at_s, kind in events:
        match kind:
            case "text":
                timing.first_text(at_s)
            case "token":
                timing.arrived(at_s)
            case "stalled":
                timing.stalled(at_s)
            case _:
                timing.resumed(at_s, engine_held=kind == "resumed_held")
    return timing


@pytest.mark.parametrize("seed", range(60))
def test_against_the_plain_account(seed: int) -> None:
    rng = random.Random(seed)
    events, at_s, stalled_s, stall_s, begun = [], rng.uniform(0, 1e6), None, 0.0, False
    for _ in range(rng.randrange(60)):
        at_s += rng.choice((rng.uniform(0, 0.05), rng.uniform(0, 0.3), 0.0))
        kinds = ["token"] * 6 if begun else ["text", "token"]
        kind = rng.choice([*kinds, "stalled" if stalled_s is None else "resumed"])
        if kind == "stalled":
            stalled_s = at_s
        elif kind == "resumed":
            assert stalled_s is not None
            kind = rng.choice(("resumed", "resumed_held"))
            stall_s, stalled_s = stall_s + at_s - stalled_s, None
        if kind == "token" and not begun:
            continue  # the account knows none before the first text
        begun = begun or kind == "text"
        events.append((at_s, kind))
    tokens = rng.randrange(80)
    timing, expected = told(events), account(events, tokens)
    assert timing.arrivals == expected.arrivals
    assert timing.longest_gap_s == pytest.approx(expected.longest_gap_s, abs=1e-6)
    assert timing.gaps_over_100ms == expected.gaps_over_100ms
    assert sum(timing.gap_counts) == len(expected.gaps_s)
    within = list(itertools.accumulate(timing.gap_counts))
    for number, bound_s in enumerate(TOKEN_BUCKETS_S[: len(within)]):
        surely, perhaps = (sum(gap_s <= bound_s + by_s for gap_s in expected.gaps_s) for by_s in (-1e-6, 1e-6))
        assert surely <= within[number] <= perhaps, bound_s
    assert timing.decode_s == pytest.approx(sum(expected.gaps_s), abs=1e-6)
    assert timing.stall_s == pytest.approx(stall_s, abs=1e-6)
    assert timing.per_token_s(tokens) == (
        None if expected.per_token_s is None else pytest.approx(expected.per_token_s, abs=1e-6)
    )


def test_nothing_before_the_first_text_is_an_arrival() -> None:
    timing = told([(1.0, "token"), (9.0, "token"), (10.0, "text"), (10.02, "token")])
    assert timing.arrivals == 2
    assert timing.longest_gap_s == pytest.approx(0.02)
