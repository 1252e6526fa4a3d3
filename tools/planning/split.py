"""Decides whether prefill and decode run on separate machines: only if moving a prompt's keys and values takes less
time than its prefill would delay the streams that run with it."""

from __future__ import annotations

import math

import msgspec

from engines.performance.roofline import Roofline
from tools.planning.operating_point import BATCHES, OperatingPoint
from tools.planning.prefill import prefill_steps_s
from tools.planning.queueing import servers_for
from tools.planning.workload import Promise, Workload


class Split(msgspec.Struct, frozen=True):
    """The decision, its two times in seconds, and how many replicas of each kind it would take."""

    transfer_s: float
    interference_s: float
    prefill_replicas: int | None
    """None if the promise is out of reach once keys and values are moved too."""
    decode_replicas: int | None

    @property
    def worthwhile(self) -> bool:
        """Whether a split pays by the rule, which ignores the operational cost of a second kind of pool."""
        return shorter(self.transfer_s, self.interference_s) and self.replicas is not None

    @property
    def replicas(self) -> int | None:
        """Replicas of both kinds."""
        if self.prefill_replicas is None or self.decode_replicas is None:
            return None
        return self.prefill_replicas + self.decode_replicas


def shorter(transfer_s: float, interference_s: float) -> bool:
    """Whether the transfer takes less time than the interference that it avoids."""
    return transfer_s < interference_s


def split(
    roofline: Roofline, workload: Workload, promise: Promise, point: OperatingPoint, transfer_bytes_per_s: float
) -> Split:
    """point: the operating point of replicas that do both. transfer_bytes_per_s: from one replica to another."""
    transfer_s = workload.prompt_tokens * roofline.node.model.kv_bytes_per_token / transfer_bytes_per_s
    return Split(
        transfer_s=transfer_s,
        interference_s=point.interference_s,
        prefill_replicas=_prefilling(roofline, workload, promise, transfer_s, point.prefill_scv),
        decode_replicas=_decoding(roofline, workload, promise),
    )


def _prefilling(
    roofline: Roofline, workload: Workload, promise: Promise, transfer_s: float, prefill_scv: float
) -> int | None:
    # no stream waits for it, so chunks would only read keys again
    cached = workload.prompt_tokens - workload.new_tokens
    service_s = sum(prefill_steps_s(roofline, workload.new_tokens, cached, math.ceil(workload.new_tokens)))
    within_s = promise.ttft_s - transfer_s
    return servers_for(workload.requests_per_s, service_s, within_s, workload.arrival_scv, prefill_scv)


def _decoding(roofline: Roofline, workload: Workload, promise: Promise) -> int | None:
    context = workload.prompt_tokens + workload.output_tokens / 2
    fastest = 0.0
    for batch in BATCHES:
        step_s = roofline.decode_s(batch, batch * context)
        if step_s > promise.tpot_s or batch * workload.tokens > roofline.kv_capacity_tokens:
            break
        fastest = batch / step_s
    return math.ceil(workload.requests_per_s * workload.output_tokens / fastest) if fastest else None
