"""The relative error of each figure when it was last compared with a real one; None if it never was.

Published: the modelled node against its vendors' figures, with a (lowest, highest) error for each kind of replica that
they published; `tests/engines/performance/test_published_figures.py` recomputes all of them and checks these bounds to
a percent, both ways. Formula: this package's closed forms against the modelled engine, simulated step by step
(`tests/tools/planning/test_against_modelled_engine.py`, the same way). `MODELLED_…` and `WHOLE_FLEET` are typed in from
runs that no test repeats; each names its source and date.
"""

from __future__ import annotations

import msgspec

from engines.performance.precision import Precision
from engines.performance.roofline import Node

Kind = tuple[str, Precision, int]
"""GPU, precision, GPUs of a replica."""
Bounds = tuple[float, float]
Published = dict[Kind, Bounds]

FIRST_TOKEN: Published = {
    ("H100", Precision.FP8, 1): (-0.19, -0.05),
    ("H100", Precision.FP8, 4): (-0.05, -0.04),
    ("H100", Precision.BF16, 2): (0.17, 0.17),
}
"""Prefill of one prompt alone."""
TIME_PER_TOKEN: Published = {("H100", Precision.FP8, 2): (-0.05, 0.06)}
SATURATED_RATE: Published = {
    ("H100", Precision.FP8, 1): (-0.25, -0.11),
    ("H100", Precision.FP8, 2): (-0.06, -0.01),
    ("H100", Precision.FP8, 4): (0.23, 0.29),
    ("H100", Precision.FP8, 8): (-0.09, 0.06),
    ("H200", Precision.FP8, 1): (-0.11, -0.10),
    ("H200", Precision.FP8, 4): (-0.02, 0.21),
    ("H200", Precision.FP8, 8): (-0.13, -0.12),
}
"""Output tokens per second of a full replica."""


class FormulaErrors(msgspec.Struct, frozen=True):
    """Errors of the closed forms against the modelled engine."""

    time_per_token: Bounds
    ttft_p99: Bounds


LONG_ANSWERS = FormulaErrors((-0.13, -0.01), (-0.11, 0.63))
SHORT_ANSWERS = FormulaErrors((-0.18, 0.03), (-0.34, 2.34))
"""Times are too short if prompts of thousands of tokens meet, and too long if prompts of a hundred share a step."""
LONG_ANSWER_TOKENS = 200


class TypedIn(msgspec.Struct, frozen=True):
    """An error that no test recomputes."""

    error: Bounds
    source: str
    """The command or run that measured it."""
    measured_on: str
    """ISO date, under which `docs/log.md` has the run."""

    @property
    def told(self) -> str:
        """Source and date, for the end of a sentence."""
        return f"{self.source}, {self.measured_on}, in no test"


EMBEDDED_ENGINE = "python -m benchmarks.simulator_validation"
MODELLED_TTFT_P50 = TypedIn((-0.01, 0.06), EMBEDDED_ENGINE, "2026-11-20")
MODELLED_TTFT_P99 = TypedIn((-0.02, 0.04), EMBEDDED_ENGINE, "2026-11-20")
MODELLED_TIME_PER_TOKEN = TypedIn((-0.05, 0.02), EMBEDDED_ENGINE, "2026-11-20")
"""The modelled engine itself, with measured prices, against the embedded engine at 0.3, 0.6 and 0.8 of its capacity:
medians over the runs, of which some were 30 % off. It covers batching and queueing only, without a GPU."""
WHOLE_FLEET = TypedIn((-0.22, -0.19), "slipstream tools simulate of Mooncake's recorded conversations", "2026-11-22")
"""A fleet's planned p99 of TTFT against the simulated one, 70B FP8 on eight H100 per replica: 3.5 s for 4.5 on four
replicas, 3.4 for 4.2 on six. The trace is not in this repository."""


class MeasuredErrors(msgspec.Struct, frozen=True):
    """Errors of one kind of replica: (lowest, highest) of planned / real − 1; None if not measured."""

    prefill_time: Bounds | None
    step_time: Bounds | None
    saturated_rate: Bounds | None
    formula: FormulaErrors
    memory: Bounds | None = None
    """No engine's own count of the memory left for keys and values was compared with the reserve of a tenth."""
    modelled_ttft_p50: TypedIn = MODELLED_TTFT_P50
    """The modelled engine's own error, on top of `formula`, like the next two."""
    modelled_ttft_p99: TypedIn = MODELLED_TTFT_P99
    modelled_time_per_token: TypedIn = MODELLED_TIME_PER_TOKEN
    whole_fleet: TypedIn = WHOLE_FLEET


def measured_errors(node: Node, precision: Precision, output_tokens: float) -> MeasuredErrors:
    """The errors published for this GPU, precision and number of GPUs, for any model."""
    kind = (node.gpu.name, precision, node.gpus)
    return MeasuredErrors(
        FIRST_TOKEN.get(kind), TIME_PER_TOKEN.get(kind), SATURATED_RATE.get(kind), formula_errors(output_tokens)
    )


def formula_errors(output_tokens: float) -> FormulaErrors:
    """Short answers have other errors, since the prompts around them dominate their time."""
    return LONG_ANSWERS if output_tokens >= LONG_ANSWER_TOKENS else SHORT_ANSWERS
