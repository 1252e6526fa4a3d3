"""How many replicas each constraint requires: the largest number decides, and its constraint is named.

The first three are the needs of ideal machines for one resource alone. The other two account for replicas that prefill
and decode in the same seconds, and for requests that arrive unevenly.
"""

from __future__ import annotations

import math
from enum import Enum

import msgspec

from engines.performance.roofline import Roofline
from tools.planning.operating_point import OperatingPoint
from tools.planning.prefill import prefill_steps_s
from tools.planning.queueing import servers_for
from tools.planning.workload import Promise, Workload, live_requests


class Side(Enum):
    """A constraint on the number of replicas."""

    PREFILL = "prefill"
    KV_MEMORY = "KV memory"
    BANDWIDTH = "bandwidth"
    TOGETHER = "prefill and decoding together"
    QUEUEING = "queueing"


class Replicas(msgspec.Struct, frozen=True):
    """Replicas by constraint, not rounded except for queueing, which needs whole servers."""

    prefill: float
    kv_memory: float
    bandwidth: float
    together: float
    queueing: int

    def of(self, side: Side) -> float:
        """The replicas that this constraint requires."""
        return {
            Side.PREFILL: self.prefill,
            Side.KV_MEMORY: self.kv_memory,
            Side.BANDWIDTH: self.bandwidth,
            Side.TOGETHER: self.together,
            Side.QUEUEING: self.queueing,
        }[side]

    @property
    def binding(self) -> Side:
        """The resource that runs out first."""
        return max((Side.PREFILL, Side.KV_MEMORY, Side.BANDWIDTH), key=self.of)

    @property
    def decided_by(self) -> Side:
        """The constraint that requires the most replicas."""
        return max(Side, key=self.of)

    @property
    def needed(self) -> int:
        """Whole replicas that satisfy all constraints."""
        return math.ceil(max(self.of(side) for side in Side) - 1e-9)


def replicas(
    roofline: Roofline, workload: Workload, promise: Promise, point: OperatingPoint, chunk_tokens: int
) -> Replicas:
    """Every constraint at the batch that replicas are operated at."""
    alone_s = sum(
        prefill_steps_s(roofline, workload.new_tokens, workload.prompt_tokens - workload.new_tokens, chunk_tokens)
    )
    return Replicas(
        prefill=workload.requests_per_s * alone_s,
        kv_memory=live_requests(workload, promise) * workload.tokens / roofline.kv_capacity_tokens,
        bandwidth=workload.requests_per_s * workload.output_tokens * point.step_s / point.batch,
        together=workload.requests_per_s / point.requests_per_s,
        queueing=_queueing(workload, promise, point),
    )


def _queueing(workload: Workload, promise: Promise, point: OperatingPoint) -> int:
    """The router keeps one queue for the whole fleet."""
    within_s = promise.ttft_s - point.step_s
    found = servers_for(workload.requests_per_s, point.prefill_s, within_s, workload.arrival_scv, point.prefill_scv)
    assert found is not None, "the knee meets the promise without a queue"
    return found
