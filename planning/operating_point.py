"""What one replica does at a batch: how many requests a second it carries, and what each of them feels.

In the long run a replica alternates between steps that only decode and steps that also carry a chunk of a prompt. Of x
requests a second, each with n chunks in S seconds of such steps and `output` tokens, x·S of the time is spent with
prompts; the rest holds steps of d seconds. So it makes x·n + (1 − x·S) / d steps a second, a stream gets a token in
each, and a batch b is kept full when b of these rates are x · output: that gives x for b.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engines.performance.roofline import Roofline
from planning.prefill import prefill_steps_s
from planning.queueing import sojourn_p99_s, wait_mean_s
from planning.workload import Promise, PromiseOutOfReach, Workload

BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""The notches of the setting that caps a batch."""


class OperatingPoint(msgspec.Struct, frozen=True):
    """One replica with so many streams. Times in seconds."""

    batch: int
    requests_per_s: float
    """That keep the batch full."""
    step_s: float
    """A step that only decodes."""
    tpot_s: float
    gap_s: float
    """The longest step: one with a chunk in it."""
    prefill_s: float
    """From the first step of a prompt to its first token."""
    prefill_steps: int
    kv_tokens: float
    """In use when every stream is at its end."""

    @property
    def prompt_share(self) -> float:
        """Part of the time in which prompts are computed."""
        return self.requests_per_s * self.prefill_s

    @property
    def interference_s(self) -> float:
        """What one prompt adds to every stream beside it."""
        return self.prefill_s - self.prefill_steps * self.step_s

    def ttft_p99_s(self, workload: Workload, servers: int, requests_per_s: float) -> float:
        """Of so many such replicas behind one queue: the step under way, then waiting and prefill."""
        return self.step_s + sojourn_p99_s(
            servers, requests_per_s, self.prefill_s, workload.arrival_scv, workload.prompt_scv
        )


def at_batch(roofline: Roofline, workload: Workload, chunk_tokens: int, batch: int) -> OperatingPoint:
    """The replica with `batch` streams, whose contexts are half grown on average."""
    context = workload.prompt_tokens + workload.output_tokens / 2
    new = workload.new_tokens
    output = max(workload.output_tokens - 1, 1)  # the first token comes with the prefill
    cached = workload.prompt_tokens - new
    step_s = roofline.decode_s(batch, batch * context)
    with_prompt_s = prefill_steps_s(roofline, new, cached, chunk_tokens, batch, context)
    steps, taken_s = len(with_prompt_s), sum(with_prompt_s)
    requests_per_s = batch / (output * step_s + batch * (taken_s - steps * step_s))
    interference_s = taken_s - steps * step_s
    # a stream begins where its prompt ended, in front of the prompts that came while that one waited
    behind_s = taken_s + wait_mean_s(1, requests_per_s, taken_s, workload.variability)
    slowed_s = requests_per_s * behind_s * interference_s
    return OperatingPoint(
        batch=batch,
        requests_per_s=requests_per_s,
        step_s=step_s,
        tpot_s=(batch / requests_per_s + slowed_s) / output,
        gap_s=max(with_prompt_s),
        prefill_s=taken_s,
        prefill_steps=steps,
        kv_tokens=batch * workload.tokens,
    )


class Knee(msgspec.Struct, frozen=True):
    """The largest batch that keeps the promises, and what is beyond it."""

    point: OperatingPoint
    broken_by: str
    """What the next larger batch would break; empty: nothing that is tried."""
    operated_at: OperatingPoint
    """One notch below."""


def knee(roofline: Roofline, workload: Workload, promise: Promise, chunk_tokens: int) -> Knee:
    """By time per token, KV memory and the first token of a request that does not wait: waiting is what replicas are
    for.

    Raises PromiseOutOfReach where not even one stream is served as promised.
    """
    kept: list[OperatingPoint] = []
    broken = ""
    for batch in BATCHES:
        point = at_batch(roofline, workload, chunk_tokens, batch)
        broken = _broken(point, roofline, workload, promise)
        if broken:
            if not kept:
                raise PromiseOutOfReach(_out_of_reach(point, workload, promise, broken), param="promise")
            break
        kept.append(point)
    return Knee(kept[-1], broken, _notch_below(kept))


def _notch_below(kept: Sequence[OperatingPoint]) -> OperatingPoint:
    return kept[-2] if len(kept) > 1 else kept[-1]


def _broken(point: OperatingPoint, roofline: Roofline, workload: Workload, promise: Promise) -> str:
    if point.kv_tokens > roofline.kv_capacity_tokens:
        return "KV memory"
    if point.tpot_s > promise.tpot_s:
        return "time per token"
    if point.ttft_p99_s(workload, 1, 0.0) > promise.ttft_s:
        return "time to first token"
    return "longest gap" if promise.gap_s and point.gap_s > promise.gap_s else ""


def _out_of_reach(point: OperatingPoint, workload: Workload, promise: Promise, broken: str) -> str:
    return (
        f"no number of replicas keeps the promise: one stream alone breaks the {broken}. The prefill of "
        f"{workload.new_tokens:,.0f} new tokens takes {point.prefill_s * 1e3:,.0f} ms and its p99 "
        f"{point.ttft_p99_s(workload, 1, 0.0) * 1e3:,.0f} ms of {promise.ttft_s * 1e3:,.0f}, a token "
        f"{point.tpot_s * 1e3:.1f} ms of {promise.tpot_s * 1e3:.1f}; more cards a replica, a smaller model or fewer "
        "bytes per weight shorten both, a prefix cache or prompts of like lengths the first"
    )
