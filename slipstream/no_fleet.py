"""The error of `slipstream tools plan` if no fleet can serve a workload: the option and its smallest possible value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from contracts.errors import ConfigError
from tools.planning.workload import PromiseOutOfReach

OPTIONS = MappingProxyType(
    {
        "promise.ttft_s": "--ttft-ms",
        "promise.tpot_s": "--tpot-ms",
        "promise": "--gap-ms",
        "precision": "--precision",
        "tensor_parallel": "--tensor-parallel",
        "context_tokens": "--context-tokens",
    }
)
"""Options by the field that the planner refuses."""


class NoFleetFits(ConfigError):
    """Raised if no number of replicas of any allowed kind can serve the workload as promised."""


def no_fleet(refused: Mapping[str, ConfigError], given: Mapping[str, str]) -> NoFleetFits:
    """The error. refused: the refusals by kind of replica. given: the value of each option, including defaults."""
    kind, nearest = min(refused.items(), key=lambda each: _distance(each[1]))
    option = OPTIONS.get(nearest.param or "", "--gpu")
    would_do = ""
    if isinstance(nearest, PromiseOutOfReach) and nearest.least:
        least = " and ".join(f"{OPTIONS[name]} {math.ceil(each_s * 1e3):,}" for name, each_s in nearest.least.items())
        would_do = f" There {least} or more would be enough, if nothing else exceeds its limit."
    others = f" (tried: {', '.join(refused)})" if len(refused) > 1 else ""
    more = "other GPUs with --gpu" if option == "--precision" else "other GPUs with --gpu and --precision"
    return NoFleetFits(
        f"{option}: {given.get(option, 'as it is')}; no fleet is large enough. With {kind}{others}: "
        f"{nearest.message.rstrip('.')}.{would_do} Give another {option}, or {more}.",
        param=option,
    )


def _distance(refused: ConfigError) -> float:
    """The sort key of refusals: the promise that is nearest to being kept first, and impossible launches last."""
    return refused.least_s or math.inf if isinstance(refused, PromiseOutOfReach) else math.inf
