"""How many replicas each side asks for, next to each other: the largest decides, and is named.

The first three are what a fleet of perfect machines would need of one resource alone. A replica that prefills and
decodes has to do both in the same seconds, and requests come unevenly: those are the other two.
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
    """What a number of replicas is needed for."""

    PREFILL = "prefill"
    KV_MEMORY = "KV memory"
    BANDWIDTH = "bandwidth"
    TOGETHER = "prefill and decoding together"
    QUEUEING = "queueing"


class Replicas(msgspec.Struct, frozen=True):
    """By side, not rounded but for queueing, where only whole servers make sense."""

    prefill: float
    kv_memory: float
    bandwidth: float
    together: float
    queueing: int

    def of(self, side: Side) -> float:
        """What this side asks for."""
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
        """What asks for most."""
        return max(Side, key=self.of)

    @property
    def needed(self) -> int:
        """Whole replicas that satisfy all of them."""
        return math.ceil(max(self.of(side) for side in Side) - 1e-9)


def replicas(
    roofline: Roofline, workload: Workload, promise: Promise, point: OperatingPoint, chunk_tokens: int
) -> Replicas:
    """Every side at the batch that replicas are operated at."""
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
