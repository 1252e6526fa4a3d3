"""Plays one rollout: each minute, the deployed `observe` and `verdict` judge the new requests."""

from __future__ import annotations

import dataclasses

import numpy as np

from benchmarks.canary_rollouts.rivals import Rival, judge
from benchmarks.canary_rollouts.traffic import Change, Stream, Traffic, baseline, draw
from control.releases.judge import Arm, Decision, Observation, Policy, State, observe, thresholds_of, verdict

BASELINE_REQUESTS = 10_000
OURS = "Slipstream"


@dataclasses.dataclass(frozen=True)
class Ending:
    """The minutes of a rollout's first rollback and first promotion to all traffic under one judge; None if none."""

    rolled_back: int | None
    promoted: int | None
    metrics: tuple[str, ...] = ()
    """The metrics that rolled it back."""

    @property
    def is_rolled_back(self) -> bool:
        """Whether it was rolled back, and before a promotion if both happened because it was held."""
        return self.rolled_back is not None and (self.promoted is None or self.rolled_back <= self.promoted)

    @property
    def is_promoted(self) -> bool:
        """Whether it was promoted before any rollback."""
        return self.promoted is not None and not self.is_rolled_back


def play(
    traffic: Traffic, change: Change, seed: int, *, held: bool = False, rivals: tuple[Rival, ...] = ()
) -> dict[str, Ending]:
    """A rollout's ending by judge. held: it continues after a promotion, to see whether it is finally rolled back."""
    rng = np.random.default_rng(seed)
    before = baseline(traffic, BASELINE_REQUESTS, rng)
    stream = draw(traffic, change, rng)
    endings = {OURS: _ours(traffic, stream, before[0].tolist(), before[1].tolist(), held)}
    for rival in rivals:
        rolled_back, promoted = judge(rival, stream, held=held)
        endings[rival.name] = Ending(rolled_back, promoted)
    return endings


def _ours(traffic: Traffic, stream: Stream, ttft_ms: list[float], itl_ms: list[float], held: bool) -> Ending:
    policy = Policy()
    thresholds = thresholds_of(policy, ttft_ms, itl_ms)
    state, stage, last, promoted = State(), 0, len(policy.least_units) - 1, None
    minutes = int(traffic.hours * 60)
    edges = np.searchsorted(stream.second, 60.0 * np.arange(minutes + 1))
    for minute in range(minutes):
        share = traffic.rates[min(stage, len(traffic.rates) - 1)] / max(traffic.rates)
        state = observe(state, policy, thresholds, stage, _batch(stream, edges[minute], edges[minute + 1], share))
        found = verdict(state, policy)
        if found.decision is Decision.ROLL_BACK:
            return Ending(minute + 1, promoted, found.decided_by)
        if found.decision is Decision.PROMOTE and stage < last:
            stage += 1
        elif found.decision is Decision.PROMOTE:
            promoted = promoted or minute + 1
        if not held and (promoted is not None or found.decision is Decision.INCONCLUSIVE):
            break
    return Ending(None, promoted)


def _batch(stream: Stream, begin: int, end: int, share: float) -> list[Observation]:
    of = slice(begin, end)
    arms = (Arm.CONTROL, Arm.CANDIDATE)
    return [
        Observation(arms[candidate], unit, None if failed else ttft_ms, None if failed else itl_ms, failed, good)
        for candidate, unit, level, ttft_ms, itl_ms, failed, good in zip(
            stream.candidate[of].tolist(), stream.unit[of].tolist(), stream.level[of].tolist(),
            stream.ttft_ms[of].tolist(), stream.itl_ms[of].tolist(), stream.failed[of].tolist(),
            stream.good[of].tolist(), strict=True,
        )
        if level < share
    ]  # fmt: skip
