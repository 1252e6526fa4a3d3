"""Plans a fleet for one model on one kind of replica, and chooses the cheapest of several kinds."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from contracts.errors import ConfigError
from engines.performance.fit import require_fit
from engines.performance.hardware import Gpu
from engines.performance.model_shape import ModelShape
from engines.performance.precision import Precision
from engines.performance.roofline import Node, Roofline
from tools.planning.chunk import chunk_tokens
from tools.planning.cost import Cost, cost
from tools.planning.ideal import Ideal, ideal
from tools.planning.operating_point import Knee, knee
from tools.planning.replicas import Replicas, replicas
from tools.planning.split import Split, split
from tools.planning.workload import Promise, PromiseOutOfReach, Workload

TENSOR_PARALLEL = (1, 2, 4, 8)


class Hardware(msgspec.Struct, frozen=True):
    """One kind of replica that can be rented."""

    gpu: Gpu
    precision: Precision
    tensor_parallel: int
    card_per_hour: float
    """US dollars."""
    transfer_bytes_per_s: float
    """Rate between two machines."""


class Plan(msgspec.Struct, frozen=True):
    """Everything that `slipstream tools plan` reports about one kind of replica."""

    hardware: Hardware
    node: Node
    workload: Workload
    promise: Promise
    ideal: Ideal
    chunk_tokens: int
    knee: Knee
    replicas: Replicas
    ttft_p99_s: float
    split: Split
    cost: Cost

    @property
    def cards(self) -> int:
        """GPUs of the whole fleet."""
        return self.replicas.needed * self.node.gpus

    @property
    def split_pays(self) -> bool:
        """Whether separate prefill and decode replicas save more time than they add, with fewer replicas in total."""
        apart = self.split.replicas
        return self.split.worthwhile and apart is not None and apart < self.replicas.needed


def plan(model: ModelShape, hardware: Hardware, workload: Workload, promise: Promise) -> Plan:
    """Raises the errors of `require_fit`, and PromiseOutOfReach."""
    node = Node(
        f"{model.name} {hardware.precision.value} {hardware.tensor_parallel}x{hardware.gpu.name}",
        hardware.gpu,
        hardware.tensor_parallel,
        hardware.precision.of(model),
    )
    require_fit(node, workload.context_tokens)
    roofline = Roofline(node)
    chunk = chunk_tokens(roofline, promise.gap_s, 1, workload.tokens)
    found = knee(roofline, workload, promise, chunk)
    point = found.operated_at
    sides = replicas(roofline, workload, promise, point, chunk)
    return Plan(
        hardware=hardware,
        node=node,
        workload=workload,
        promise=promise,
        ideal=ideal(node),
        chunk_tokens=chunk,
        knee=found,
        replicas=sides,
        ttft_p99_s=point.ttft_p99_s(workload, sides.needed, workload.requests_per_s),
        split=split(roofline, workload, promise, point, hardware.transfer_bytes_per_s),
        cost=cost(sides.needed * node.gpus, hardware.card_per_hour, workload, point),
    )


def cheapest(model: ModelShape, kinds: Iterable[Hardware], workload: Workload, promise: Promise) -> Plan:
    """The cheapest of the kinds that can serve the workload. If none can, raises the refusal of the last kind, which is
    the largest if they are in order, but prefers the last PromiseOutOfReach."""
    best: Plan | None = None
    refused: ConfigError | None = None
    for hardware in kinds:
        try:
            made = plan(model, hardware, workload, promise)
        except ConfigError as error:
            if not isinstance(refused, PromiseOutOfReach) or isinstance(error, PromiseOutOfReach):
                refused = error
            continue
        if best is None or made.cost.per_hour < best.cost.per_hour:
            best = made
    if best is None:
        assert refused is not None, "no GPU type was given"
        raise refused
    return best
