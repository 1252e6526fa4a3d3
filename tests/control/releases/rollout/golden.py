"""Two releases whose steps are kept as a worker stored them, so that a later judge is held to what an earlier one said.

`python -m tests.control.releases.rollout.golden` plays them again and writes `golden.bin`. Run it only where verdicts
are meant to change: releases that ran before can then no longer be replayed.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from control.releases.judge import Arm, Copy, Observation, Policy, State, Thresholds
from control.releases.machine import Event, after
from control.releases.machine import State as ReleaseState
from control.releases.release import Release
from control.releases.rollout.evidence import Batch, packed
from control.releases.rollout.judging import Rules, event_of, folded, told
from tests.control.releases.fleets import release

KEPT = Path(__file__).with_name("golden.bin")
STAGES = (0.0, 0.25, 0.5, 1.0)
POLICY = Policy(
    least_units=(20, 40), cold_requests=5, tolerance=0.5, error_margin=0.1, goodput_margin=0.1, alpha=0.2,
    promotion_alpha=0.2, quantiles=(0.25, 0.5, 0.75, 0.9), tail_quantiles=(0.75, 0.9), promoted_quantile=0.75,
    needs_slices=True, least_votes=2,
)  # fmt: skip
THRESHOLDS = Thresholds(ttft_ms=(130.5, 148.25, 171.125, 203.1), itl_ms=(17.75, 20.5, 23.25, 27.1))
LOOKS = 200


class Kept(msgspec.Struct, kw_only=True):
    """A release and its steps, by the columns of `release_steps` that a replay reads."""

    stages: tuple[float, ...]
    slices: tuple[str, ...]
    shadow_least: int
    policy: str
    thresholds: str
    steps: list[dict[str, Any]]

    def release(self) -> Release:
        return release(
            stages=self.stages,
            slices=self.slices,
            shadow_least=self.shadow_least,
            policy=self.policy,
            thresholds=self.thresholds,
        )


def kept() -> dict[str, Kept]:
    return msgspec.msgpack.decode(zlib.decompress(KEPT.read_bytes()), type=dict[str, Kept])


def batches(choose: random.Random, *, worse: float, copies_worse: float) -> Iterator[Batch]:
    """What each look finds. worse, copies_worse: the part of the candidate's requests, and of copies, that fails."""
    for look in range(LOOKS):
        copies = tuple(_copy(choose, copies_worse) for _ in range(6)) if look < 10 else ()
        observations = tuple(_observation(choose, worse) for _ in range(12))
        yield Batch(observations, "pass" if look == 4 else "", int(look % 5 == 1), int(look % 3 == 0), {}, copies)


def _copy(choose: random.Random, worse: float) -> Copy:
    baseline, candidate = choose.random() < 0.1, choose.random() < 0.1 + worse
    return Copy(choose.getrandbits(63), candidate - baseline, not (candidate or baseline))


def _observation(choose: random.Random, worse: float) -> Observation:
    arm = choose.choice((Arm.CANDIDATE, Arm.CONTROL))
    failed = choose.random() < 0.02 + worse * (arm is Arm.CANDIDATE)
    left = not failed and choose.random() < 0.05
    ttft_ms, itl_ms = choose.lognormvariate(5, 0.25), choose.lognormvariate(3, 0.25)
    good = choose.choice((None, not failed))
    unit = choose.getrandbits(8)  # sessions come again
    arm = Arm.CANDIDATE if unit % 2 else Arm.CONTROL
    return Observation(
        arm, unit + (choose.getrandbits(5) << 8), None if failed else ttft_ms, itl_ms, failed, good, left
    )


def played(seed: int, *, worse: float = 0.0, copies_worse: float = 0.0) -> Kept:
    """A release, step by step as the controller takes them."""
    kept = Kept(
        stages=STAGES, slices=("facts",), shadow_least=30, policy=msgspec.json.encode(POLICY).decode(),
        thresholds=msgspec.json.encode(THRESHOLDS).decode(), steps=[],
    )  # fmt: skip
    at, state, rules = kept.release(), State(), Rules(POLICY, THRESHOLDS)
    at = _moved(kept, at, Event.START)
    at = _moved(kept, at, Event.BEGIN)
    for batch in batches(random.Random(seed), worse=worse, copies_worse=copies_worse):
        if at.in_shadow:
            batch = msgspec.structs.replace(batch, observations=())
        state = folded(state, rules, at.traffic_stage, batch)
        found, verdict = told(state, rules)
        at = _moved(kept, at, event_of(at, state, found), batch, verdict)
        if at.state.ended:
            return kept
    raise RuntimeError(f"seed {seed} ended undecided; choose another")


def _moved(kept: Kept, at: Release, event: Event, batch: Batch | None = None, verdict: str | None = None) -> Release:
    place = at.place if event is Event.START else after(at.place, event, len(at.stages))
    kept.steps.append({
        "step": len(kept.steps) + 1, "event": event.value, "stage": at.stage, "state": place.state.value,
        "requests": 0 if batch is None else len(batch.observations), "more_units": 0, "verdict": verdict,
        "evidence": None if batch is None else packed(batch),
    })  # fmt: skip
    return msgspec.structs.replace(at, state=ReleaseState(place.state), stage=place.stage)


def main() -> None:
    found = {"promoted": played(1), "failing": played(2, worse=0.5), "in_shadow": played(3, copies_worse=0.9)}
    KEPT.write_bytes(zlib.compress(msgspec.msgpack.encode(found), 9))
    for name, kept in found.items():
        print(name, len(kept.steps), "steps,", kept.steps[-1]["state"], "at stage", kept.steps[-1]["stage"])


if __name__ == "__main__":
    main()
