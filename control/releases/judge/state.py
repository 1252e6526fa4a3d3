"""Counts of a canary's requests, and the coins that each session has tossed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from control.releases.judge.observation import Arm, Copy, Observation
from control.releases.judge.policy import Policy
from control.releases.judge.thresholds import Thresholds

_STAGE = 32
"""From this bit on, a session's word holds one more than the last stage it counted in; the lowest bit is its arm."""
_COUNTED = 1
_ERRORS_FIRST, _ERRORS, _GOODPUT_FIRST, _GOODPUT = (1 << bit for bit in range(1, 5))
_TTFT = 5
"""From this bit on: the first latency was counted, one bit for each tail quantile, and the session is unproven."""


class Slices(StrEnum):
    """The gate's verdict on the candidate's slices."""

    NONE = "none"
    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class LatencyCounts(msgspec.Struct, frozen=True, array_like=True):
    """Sessions by latency. A candidate's latency is divided by 1 + tolerance first."""

    candidate_first: tuple[int, ...] = ()
    """Sessions by the number of thresholds that the first request exceeds: one entry more than quantiles."""
    control_first: tuple[int, ...] = ()
    candidate_beyond: tuple[int, ...] = ()
    """Sessions with a request beyond each tail quantile."""
    control_beyond: tuple[int, ...] = ()
    candidate_unproven: int = 0
    """Sessions with a request beyond the promoted quantile or without text, which a proof counts: an engine without a
    response exceeds no latency, and must not look fast because of it."""
    control_unproven: int = 0


class RateCounts(msgspec.Struct, frozen=True, array_like=True):
    """Sessions by whether one of their requests had the fault."""

    exposed: int = 0
    """Requests of both arms: of each session, those up to and including its first with the fault."""
    candidate: int = 0
    """The candidate's sessions with the fault."""
    control: int = 0
    first_units: int = 0
    """Sessions of both arms; in this field and the next two, only a session's first request counts."""
    first_candidate: int = 0
    first_control: int = 0


class CopyCounts(msgspec.Struct, frozen=True, array_like=True):
    """Copies of requests. In the first three fields, a session counts up to and including its first copy at which one
    side alone failed."""

    exposed: int = 0
    candidate: int = 0
    """Sessions in which the candidate alone failed first."""
    baseline: int = 0
    """Sessions in which the customer's own engine alone failed first."""
    compared: int = 0
    """All copies that both sides answered."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The whole input of a verdict. It begins as `State()`."""

    stage: int = -1
    stage_requests: int = 0
    """Requests of this stage, including those set aside."""
    stage_candidate_units: int = 0
    """Sessions with a request in this stage that was answered or failed."""
    stage_control_units: int = 0
    ttft: LatencyCounts = LatencyCounts()
    itl: LatencyCounts = LatencyCounts()
    errors: RateCounts = RateCounts()
    goodput: RateCounts = RateCounts()
    worse_votes: int = 0
    better_votes: int = 0
    slices: Slices = Slices.NONE
    copies: CopyCounts = CopyCounts()
    copied_units: frozenset[int] = frozenset()
    """Sessions that have tossed the coin of `copies`."""
    more_units: int = 0
    """Sessions that a person granted beyond `Policy.most_units`."""
    crossed: int = 0
    """Requests left out because their session was on the other arm before."""
    units: dict[int, int] = {}
    """Each session's arm, tossed coins and last stage, as bits."""


def observe(state: State, policy: Policy, thresholds: Thresholds, stage: int, batch: Iterable[Observation]) -> State:
    """The state after these requests of a stage; their division into batches does not matter.

    Raises ValueError for a stage that the policy does not have or that is before the state's.
    """
    if not 0 <= stage < len(policy.least_units):
        raise ValueError(f"stage: {stage} must be in [0, {len(policy.least_units) - 1}], the stages of least_units")
    if stage < state.stage:
        raise ValueError(f"stage: {stage} was left for {state.stage}; a release that goes back is another release")
    fold = _Fold(state, policy, thresholds, stage)
    for observation in batch:
        fold.add(observation)
    return fold.state()


def observe_votes(state: State, *, worse: int, better: int) -> State:
    """The state after decisive votes, each on another pair. worse, better: votes by whether the candidate's answer was
    the worse or the better one."""
    return msgspec.structs.replace(
        state, worse_votes=state.worse_votes + worse, better_votes=state.better_votes + better
    )


def observe_copies(state: State, copies: Iterable[Copy]) -> State:
    """The state after these copies of requests, of any stage."""
    exposed, candidate, baseline, compared = msgspec.structs.astuple(state.copies)
    tossed = set(state.copied_units)
    for copy in copies:
        compared += copy.compared
        if copy.unit in tossed:
            continue
        exposed += 1
        if copy.worse:
            tossed.add(copy.unit)
            candidate += copy.worse > 0
            baseline += copy.worse < 0
    counts = CopyCounts(exposed, candidate, baseline, compared)
    return msgspec.structs.replace(state, copies=counts, copied_units=frozenset(tossed))


def observe_slices(state: State, slices: Slices) -> State:
    """The state after the gate's verdict. A failure stays, whatever a later run decides."""
    return state if state.slices is Slices.FAIL else msgspec.structs.replace(state, slices=slices)


def observe_budget(state: State, policy: Policy, more_units: int) -> State:
    """The state after a person has granted more sessions, beyond those that have been counted meanwhile. Tests by
    betting stay valid however often they are read, so a longer budget does not change their error rates: it only
    decides when a person is asked again."""
    spent = max(policy.most_units + state.more_units, len(state.units))
    return msgspec.structs.replace(state, more_units=spent - policy.most_units + more_units)


class _Fold:
    """A state that is being added to: the only mutable part."""

    def __init__(self, state: State, policy: Policy, thresholds: Thresholds, stage: int) -> None:
        is_new = stage != state.stage
        self._before = state
        self._stage = stage
        self._cold_requests = policy.cold_requests
        self._requests = 0 if is_new else state.stage_requests
        self._stage_units = [0, 0] if is_new else [state.stage_control_units, state.stage_candidate_units]
        self._crossed = state.crossed
        self._units = dict(state.units)
        self._errors = list(msgspec.structs.astuple(state.errors))
        self._goodput = list(msgspec.structs.astuple(state.goodput))
        itl = _TTFT + 2 + len(policy.tail_quantiles)
        self._ttft = _LatencyFold(state.ttft, policy, thresholds.ttft_ms, _TTFT)
        self._itl = _LatencyFold(state.itl, policy, thresholds.itl_ms, itl)

    def add(self, observation: Observation) -> None:
        self._requests += 1
        if self._requests <= self._cold_requests:
            return
        is_candidate = observation.arm is Arm.CANDIDATE
        before = self._units.get(observation.unit)
        if before is None:
            word = int(is_candidate)
        elif (before & _COUNTED) != is_candidate:
            self._crossed += 1
            return
        else:
            word = before
        if not observation.left and word >> _STAGE != self._stage + 1:
            word = (word & ((1 << _STAGE) - 1)) | ((self._stage + 1) << _STAGE)
            self._stage_units[is_candidate] += 1
        if observation.ttft_ms is not None:
            word = self._ttft.add(word, is_candidate, observation.ttft_ms)
        else:
            word = self._ttft.add_silence(word, is_candidate)
            word = self._itl.add_silence(word, is_candidate)
        if observation.itl_ms is not None:
            word = self._itl.add(word, is_candidate, observation.itl_ms)
        word = _rate(self._errors, word, is_candidate, observation.failed, _ERRORS_FIRST, _ERRORS)
        if observation.good is not None:
            word = _rate(self._goodput, word, is_candidate, not observation.good, _GOODPUT_FIRST, _GOODPUT)
        if word != before:
            self._units[observation.unit] = word

    def state(self) -> State:
        return msgspec.structs.replace(
            self._before,
            stage=self._stage,
            stage_requests=self._requests,
            stage_control_units=self._stage_units[0],
            stage_candidate_units=self._stage_units[1],
            ttft=self._ttft.counts(),
            itl=self._itl.counts(),
            errors=RateCounts(*self._errors),
            goodput=RateCounts(*self._goodput),
            crossed=self._crossed,
            units=self._units,
        )


class _LatencyFold:
    """One latency's counts that are being added to. bit: where its flags begin in a session's word."""

    def __init__(self, counts: LatencyCounts, policy: Policy, thresholds_ms: tuple[float, ...], bit: int) -> None:
        if thresholds_ms and len(thresholds_ms) != len(policy.quantiles):
            raise ValueError(f"thresholds: {len(thresholds_ms)} must be as many as quantiles, {len(policy.quantiles)}")
        places = len(policy.quantiles) + 1 if thresholds_ms else 0
        tails = len(policy.tail_quantiles) if thresholds_ms else 0
        self._thresholds_ms = thresholds_ms
        self._tolerated = 1.0 + policy.tolerance
        self._first_flag = 1 << bit
        self._beyond_flags = [
            (1 << (bit + 1 + at), policy.quantiles.index(quantile) + 1, at)
            for at, quantile in enumerate(policy.tail_quantiles)
        ]
        self._unproven_flag = 1 << (bit + 1 + len(policy.tail_quantiles))
        self._promoted = policy.quantiles.index(policy.promoted_quantile) + 1
        self._unproven = [counts.control_unproven, counts.candidate_unproven]
        self._first = [list(counts.control_first or [0] * places), list(counts.candidate_first or [0] * places)]
        self._beyond = [list(counts.control_beyond or [0] * tails), list(counts.candidate_beyond or [0] * tails)]

    def add(self, word: int, is_candidate: bool, latency_ms: float) -> int:
        if not self._thresholds_ms:
            return word
        if not latency_ms >= 0:  # NaN, or negative after a clock was set back: no time, and above all no short one
            return self.add_silence(word, is_candidate)
        exceeded = bisect_left(self._thresholds_ms, latency_ms / self._tolerated if is_candidate else latency_ms)
        if not word & self._first_flag:
            word |= self._first_flag
            self._first[is_candidate][exceeded] += 1
        for flag, least, at in self._beyond_flags:
            if exceeded >= least and not word & flag:
                word |= flag
                self._beyond[is_candidate][at] += 1
        return word if exceeded < self._promoted else self.add_silence(word, is_candidate)

    def add_silence(self, word: int, is_candidate: bool) -> int:
        """Count a request that is slow or has no text: it supports no proof."""
        if self._thresholds_ms and not word & self._unproven_flag:
            word |= self._unproven_flag
            self._unproven[is_candidate] += 1
        return word

    def counts(self) -> LatencyCounts:
        return LatencyCounts(
            tuple(self._first[1]),
            tuple(self._first[0]),
            tuple(self._beyond[1]),
            tuple(self._beyond[0]),
            self._unproven[1],
            self._unproven[0],
        )


def _rate(counts: list[int], word: int, is_candidate: bool, has_fault: bool, first_flag: int, flag: int) -> int:
    """Add a request to counts, which are in the order of RateCounts."""
    if not word & first_flag:
        word |= first_flag
        counts[3] += 1
        if has_fault:
            counts[4 if is_candidate else 5] += 1
    if not word & flag:
        counts[0] += 1
        if has_fault:
            word |= flag
            counts[1 if is_candidate else 2] += 1
    return word
