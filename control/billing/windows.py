"""Compares windows of an engine's counters with the ledger. Pure.

An engine counts while an attempt runs, the ledger when it has ended. Between two samples an engine has therefore
counted at least the tokens of attempts that lay wholly between them, and at most these and the tokens of attempts that
were running at either sample. A count outside of these bounds is drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from engines.drivers.counters import EngineCounts


class Sample(msgspec.Struct, frozen=True):
    """An engine's counters at a time (epoch seconds)."""

    sampled_at: float
    counts: EngineCounts
    continues: bool
    """Whether the counters continue those of the previous sample; False for the first one and after a restart."""


class Window(msgspec.Struct, frozen=True):
    """An engine's count from one sample to another."""

    begin: float
    end: float
    prompt_tokens: int
    completion_tokens: int


class Bounds(msgspec.Struct, frozen=True):
    """The ledger's bounds of an engine's count."""

    prompt_tokens_min: int
    prompt_tokens_max: int
    completion_tokens_min: int
    completion_tokens_max: int


def continues(before: EngineCounts | None, now: EngineCounts) -> bool:
    """Whether both can be counters of the same process, whose counters never fall. Stages count if both have them."""
    if before is None:
        return False
    pairs = [
        (before.prompt_tokens, now.prompt_tokens),
        (before.cached_tokens, now.cached_tokens),
        (before.completion_tokens, now.completion_tokens),
    ]
    if before.stages is not None and now.stages is not None:
        pairs += zip(msgspec.structs.astuple(before.stages), msgspec.structs.astuple(now.stages), strict=True)
    return all(old <= new for old, new in pairs)


def windows(samples: Sequence[Sample], at_least_s: float, compared_until: float) -> Iterator[Window]:
    """Windows between restarts, each of at least `at_least_s`; a restart ends the last one early.

    samples: in order of time. compared_until: end of the last compared window, where these begin.
    """
    begin: Sample | None = None
    last: Sample | None = None
    for sample in samples:
        if sample.sampled_at < compared_until:
            continue
        if begin is None or not sample.continues:
            if begin is not None and last is not None and last is not begin:
                yield _window(begin, last)
            begin = last = sample
            continue
        last = sample
        if sample.sampled_at - begin.sampled_at >= at_least_s:
            yield _window(begin, sample)
            begin = sample


def drift(counted: int, least: int, most: int) -> int:
    """Distance of a count from the bounds: positive, the ledger lacks tokens; negative, it has tokens that no engine
    counted."""
    return counted - most if counted > most else min(0, counted - least)


def _window(begin: Sample, end: Sample) -> Window:
    return Window(
        begin.sampled_at,
        end.sampled_at,
        end.counts.prompt_tokens - begin.counts.prompt_tokens,
        end.counts.completion_tokens - begin.counts.completion_tokens,
    )
