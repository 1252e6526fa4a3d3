"""One replica at a batch size: the requests per second that it carries and the latency of each.

In the long run, a replica alternates between steps that only decode and steps that also carry a chunk of a prompt. With
x requests per second, each with n chunks in S seconds of such steps and `output` tokens, it spends x·S of the time on
prompts and the rest on steps of d seconds. So it makes x·n + (1 − x·S) / d steps per second, and a stream gets a token
in each. A batch b stays full if b times this rate is x · output, which gives x for b.
"""

from __future__ import annotations

import math

import msgspec

from engines.performance.roofline import Roofline
from tools.planning.prefill import prefill_steps_s
from tools.planning.queueing import BISECTIONS, scv_of_p99, sojourn_p99_s, wait_mean_s
from tools.planning.workload import Promise, PromiseOutOfReach, Workload

BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""The sizes that are tried."""
MAX_PROMPT_SHARE = 0.8
"""Fraction of a replica's time; as it approaches 1, prompts and the streams that they interrupt wait without bound."""
PER_TOKEN, FIRST_TOKEN = "time per token", "time to first token"
PROMISED = {PER_TOKEN: "promise.tpot_s", FIRST_TOKEN: "promise.ttft_s"}
"""The field of the promise for each figure that can break it."""
PLATEAU = "throughput that no longer rises"


class OperatingPoint(msgspec.Struct, frozen=True):
    """One replica with `batch` streams. Times are in seconds."""

    batch: int
    requests_per_s: float
    """The rate that keeps the batch full; less if prompts alone would fill the time."""
    step_s: float
    """A step that only decodes."""
    tpot_s: float
    gap_s: float
    """The longest step: one with a chunk in it."""
    prefill_s: float
    """Time from the first step of a prompt to its first token."""
    prefill_scv: float
    """Squared coefficient of variation of `prefill_s` over prompts."""
    prefill_steps: int
    kv_tokens: float
    """Tokens in use when every stream is at its end."""

    @property
    def interference_s(self) -> float:
        """Time that one prompt adds to every stream that runs with it."""
        return self.prefill_s - self.prefill_steps * self.step_s

    def ttft_p99_s(self, workload: Workload, servers: int, requests_per_s: float) -> float:
        """TTFT of `servers` such replicas with one queue: the current step, then waiting and prefill."""
        return self.step_s + sojourn_p99_s(
            servers, requests_per_s, self.prefill_s, workload.arrival_scv, self.prefill_scv
        )


def at_batch(roofline: Roofline, workload: Workload, chunk_tokens: int, batch: int) -> OperatingPoint:
    """The replica with `batch` streams, whose answers are half done on average."""
    return at_rate(roofline, workload, chunk_tokens, batch, math.inf)


def at_rate(roofline: Roofline, workload: Workload, chunk_tokens: int, batch: int, most_per_s: float) -> OperatingPoint:
    """The replica if it gets at most `most_per_s` requests per second, so that the batch may not be full."""
    context = workload.prompt_tokens + workload.output_tokens / 2
    new = workload.new_tokens
    output = max(workload.output_tokens - 1, 1)  # the first token comes with the prefill
    cached = workload.prompt_tokens - new
    step_s = roofline.decode_s(batch, batch * context)
    with_prompt_s = prefill_steps_s(roofline, new, cached, chunk_tokens, batch, context)
    steps, taken_s = len(with_prompt_s), sum(with_prompt_s)
    interference_s = taken_s - steps * step_s
    full_per_s = batch / (output * step_s + batch * interference_s)
    requests_per_s = min(full_per_s, MAX_PROMPT_SHARE / taken_s, most_per_s)
    # a stream starts when its prompt ends, before the prompts that arrived while that prompt waited
    prefill_scv = workload.prompt_scv
    if longest := workload.prompt_p99_tokens:
        new_share = new / workload.prompt_tokens
        p99_s = sum(
            prefill_steps_s(roofline, longest * new_share, longest * (1 - new_share), chunk_tokens, batch, context)
        )
        prefill_scv = scv_of_p99(taken_s, p99_s)
    variability = (workload.arrival_scv + prefill_scv) / 2
    queued_s = taken_s + wait_mean_s(1, requests_per_s, taken_s, variability)
    stream_s = (output * step_s + requests_per_s * queued_s * interference_s) / (1 - requests_per_s * interference_s)
    return OperatingPoint(
        batch=batch,
        requests_per_s=requests_per_s,
        step_s=step_s,
        tpot_s=stream_s / output,
        gap_s=max(with_prompt_s),
        prefill_s=taken_s,
        prefill_scv=prefill_scv,
        prefill_steps=steps,
        kv_tokens=batch * workload.tokens,
    )


class Knee(msgspec.Struct, frozen=True):
    """The largest batch that keeps the promises, and the limit above it."""

    point: OperatingPoint
    broken_by: str
    """What the next larger batch would break; empty if no batch that was tried breaks anything."""
    operated_at: OperatingPoint
    """One size below the knee if a larger batch would break a promise; the knee itself if it would gain nothing."""


def knee(roofline: Roofline, workload: Workload, promise: Promise, chunk_tokens: int) -> Knee:
    """Limited by time per token, KV memory and TTFT without waiting, which depends on the number of replicas.

    Raises PromiseOutOfReach if not even one stream is served as promised.
    """
    kept: list[OperatingPoint] = []
    broken, risen = "", True
    for batch in BATCHES:
        point = at_batch(roofline, workload, chunk_tokens, batch)
        broken = _broken(point, roofline, workload, promise)
        if broken and not kept:
            return _one_stream(roofline, workload, promise, chunk_tokens)
        risen = not kept or point.requests_per_s > kept[-1].requests_per_s
        if broken or not risen:
            break
        kept.append(point)
    if not broken:
        return Knee(kept[-1], "" if risen else PLATEAU, kept[-1])
    return Knee(kept[-1], broken, kept[-2] if len(kept) > 1 else kept[-1])


def _one_stream(roofline: Roofline, workload: Workload, promise: Promise, chunk_tokens: int) -> Knee:
    """A replica that keeps its promise only with less load than one stream after the other."""
    idle = at_rate(roofline, workload, chunk_tokens, 1, 0.0)
    broken = _broken(idle, roofline, workload, promise)
    if broken:
        raise _out_of_reach(idle, roofline, workload, promise, broken)
    full = at_batch(roofline, workload, chunk_tokens, 1)
    low, high = 0.0, full.requests_per_s
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        kept = at_rate(roofline, workload, chunk_tokens, 1, middle).tpot_s <= promise.tpot_s
        low, high = (middle, high) if kept else (low, middle)
    if not low:
        raise _out_of_reach(idle, roofline, workload, promise, PER_TOKEN)
    point = at_rate(roofline, workload, chunk_tokens, 1, low)
    return Knee(point, _broken(full, roofline, workload, promise), point)


def _broken(point: OperatingPoint, roofline: Roofline, workload: Workload, promise: Promise) -> str:
    if point.kv_tokens > roofline.kv_capacity_tokens:
        return "KV memory"
    if point.tpot_s > promise.tpot_s:
        return PER_TOKEN
    if point.ttft_p99_s(workload, 1, 0.0) > promise.ttft_s:
        return FIRST_TOKEN
    return "longest gap" if promise.gap_s and point.gap_s > promise.gap_s else ""


def _out_of_reach(
    point: OperatingPoint, roofline: Roofline, workload: Workload, promise: Promise, broken: str
) -> PromiseOutOfReach:
    """broken: what was found first; the error also names everything else that one stream alone breaks."""
    first_token_s = point.ttft_p99_s(workload, 1, 0.0)
    taken_s = {PER_TOKEN: (point.tpot_s, promise.tpot_s), FIRST_TOKEN: (first_token_s, promise.ttft_s)}
    missed = dict.fromkeys([broken, *(what for what, (taken, promised) in taken_s.items() if taken > promised)])
    node = roofline.node
    more_gpus = "more GPUs a replica, " if node.gpus < node.gpu.per_node else ""
    return PromiseOutOfReach(
        f"no number of replicas meets the promise: a single stream breaks the {' and the '.join(missed)}. The prefill "
        f"of {workload.new_tokens:,.0f} new tokens takes {point.prefill_s * 1e3:,.0f} ms and its p99 "
        f"{first_token_s * 1e3:,.0f} ms of {promise.ttft_s * 1e3:,.0f}, a token "
        f"{point.tpot_s * 1e3:.1f} ms of {promise.tpot_s * 1e3:.1f}; {more_gpus}a smaller model or fewer "
        "bytes per weight shorten both, a prefix cache or prompts of like lengths the first",
        param=PROMISED.get(broken, "promise"),
        least={PROMISED[what]: taken_s[what][0] for what in missed if what in taken_s},
    )
