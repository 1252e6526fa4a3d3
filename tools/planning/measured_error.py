"""How far off each figure was when it was last held against something real, as a part of what was real; None: it never
was.

Published: the modelled node against its vendors' figures, one (lowest, highest) error for each kind of replica they
published for; `tests/engines/performance/test_published_figures.py` recomputes all of them and holds these bounds to
a percent, both ways. Formula: this package's closed forms against the modelled engine, played through step by step
(`tests/tools/planning/test_against_modelled_engine.py`, the same way). `MODELLED_ENGINE` and `WHOLE_FLEET` are typed in
from runs that no test repeats: each says where and when.
"""

from __future__ import annotations

import msgspec

from engines.performance.precision import Precision
from engines.performance.roofline import Node

Kind = tuple[str, Precision, int]
"""Card, precision, cards of a replica."""
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
"""Output tokens a second of a full replica."""


class FormulaErrors(msgspec.Struct, frozen=True):
    """Of the closed forms against the modelled engine."""

    time_per_token: Bounds
    ttft_p99: Bounds


LONG_ANSWERS = FormulaErrors((-0.13, -0.01), (-0.11, 0.63))
SHORT_ANSWERS = FormulaErrors((-0.18, 0.03), (-0.34, 2.34))
"""Too short where prompts of thousands of tokens meet, too long where prompts of a hundred share a step."""
LONG_ANSWER_TOKENS = 200


class TypedIn(msgspec.Struct, frozen=True):
    """An error that no test recomputes."""

    error: Bounds
    source: str
    """What was run."""
    measured_on: str
    """ISO date; `docs/log.md` has the run under it."""

    @property
    def told(self) -> str:
        """For the end of a sentence."""
        return f"{self.source}, {self.measured_on}, in no test"


EMBEDDED_ENGINE = "python -m benchmarks.simulator_validation"
MODELLED_TTFT_P50 = TypedIn((-0.01, 0.06), EMBEDDED_ENGINE, "2026-11-20")
MODELLED_TTFT_P99 = TypedIn((-0.02, 0.04), EMBEDDED_ENGINE, "2026-11-20")
MODELLED_TIME_PER_TOKEN = TypedIn((-0.05, 0.02), EMBEDDED_ENGINE, "2026-11-20")
"""The modelled engine itself, with measured prices, against the embedded engine at 0.3, 0.6 and 0.8 of its capacity:
medians over the runs, of which single ones were 30 % off. Batching and queueing alone; no GPU."""
WHOLE_FLEET = TypedIn((-0.22, -0.19), "slipstream tools simulate of Mooncake's recorded conversations", "2026-11-22")
"""A fleet's planned first token's p99 against the simulated one, 70B FP8 on eight H100 a replica: 3.5 s for 4.5 on four
replicas, 3.4 for 4.2 on six. The trace is not in this repository."""


class MeasuredErrors(msgspec.Struct, frozen=True):
    """Of one kind of replica: (lowest, highest), planned over real less 1; None: not measured."""

    prefill_time: Bounds | None
    step_time: Bounds | None
    saturated_rate: Bounds | None
    formula: FormulaErrors
    memory: Bounds | None = None
    """No engine's own count of what is left for keys and values was held against the reserve of a tenth."""
    modelled_ttft_p50: TypedIn = MODELLED_TTFT_P50
    """The modelled engine's own, on top of `formula`; so are the next two."""
    modelled_ttft_p99: TypedIn = MODELLED_TTFT_P99
    modelled_time_per_token: TypedIn = MODELLED_TIME_PER_TOKEN
    whole_fleet: TypedIn = WHOLE_FLEET


def measured_errors(node: Node, precision: Precision, output_tokens: float) -> MeasuredErrors:
    """What was published for this card, precision and number of cards, whichever model it was for."""
    kind = (node.gpu.name, precision, node.gpus)
    return MeasuredErrors(
        FIRST_TOKEN.get(kind), TIME_PER_TOKEN.get(kind), SATURATED_RATE.get(kind), formula_errors(output_tokens)
    )


def formula_errors(output_tokens: float) -> FormulaErrors:
    """They are other ones for short answers, whose streams live in the shadow of the prompts around them."""
    return LONG_ANSWERS if output_tokens >= LONG_ANSWER_TOKENS else SHORT_ANSWERS
