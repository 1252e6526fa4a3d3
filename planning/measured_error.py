"""How far off each figure was when it was last held against something real, as a part of what was real; None: it never
was.

Published: the modelled node against its vendors' figures, one (lowest, highest) error for each kind of replica they
published for; `tests/engines/performance/test_published_figures.py` computes them anew. Formula: this package's closed
forms against the modelled engine, played through step by step (`tests/planning/test_against_modelled_engine.py`). That
engine with measured prices came within 6 % of the embedded one's median time to first token and within 4 % of its p99
(`docs/log.md`).
"""

from __future__ import annotations

import msgspec

from engines.performance.precision import Precision
from engines.performance.roofline import Node

Kind = tuple[str, Precision, int]
"""Card, precision, cards of a replica."""
Bounds = tuple[float, float]

FIRST_TOKEN: dict[Kind, Bounds] = {
    ("H100", Precision.FP8, 1): (-0.19, -0.05),
    ("H100", Precision.FP8, 4): (-0.05, -0.04),
    ("H100", Precision.BF16, 2): (0.17, 0.17),
}
"""Prefill of one prompt alone."""
TIME_PER_TOKEN: dict[Kind, Bounds] = {("H100", Precision.FP8, 2): (-0.06, 0.06)}
SATURATED_RATE: dict[Kind, Bounds] = {
    ("H100", Precision.FP8, 1): (-0.11, -0.10),
    ("H100", Precision.FP8, 2): (-0.02, -0.01),
    ("H100", Precision.FP8, 4): (0.22, 0.28),
    ("H100", Precision.FP8, 8): (-0.09, 0.07),
    ("H200", Precision.FP8, 1): (-0.12, -0.09),
    ("H200", Precision.FP8, 8): (-0.13, -0.12),
}
"""Output tokens a second of a full replica. Four H100: as found when the model was fitted, in no test; the published
figures themselves do not fit between two and eight."""


class FormulaErrors(msgspec.Struct, frozen=True):
    """Of the closed forms against the modelled engine."""

    time_per_token: Bounds
    ttft_p99: Bounds


LONG_ANSWERS = FormulaErrors((-0.13, -0.01), (-0.12, 0.63))
SHORT_ANSWERS = FormulaErrors((-0.18, 0.03), (-0.35, 2.34))
"""Too short where prompts of thousands of tokens meet, too long where prompts of a hundred share a step."""
LONG_ANSWER_TOKENS = 200


class MeasuredErrors(msgspec.Struct, frozen=True):
    """Of one kind of replica: (lowest, highest), planned over real less 1; None: not measured."""

    prefill_time: Bounds | None
    step_time: Bounds | None
    saturated_rate: Bounds | None
    formula: FormulaErrors
    memory: Bounds | None = None
    """No engine's own count of what is left for keys and values was held against the reserve of a tenth."""


def measured_errors(node: Node, precision: Precision, output_tokens: float) -> MeasuredErrors:
    """What was published for this card, precision and number of cards, whichever model it was for."""
    kind = (node.gpu.name, precision, node.gpus)
    return MeasuredErrors(
        FIRST_TOKEN.get(kind), TIME_PER_TOKEN.get(kind), SATURATED_RATE.get(kind), formula_errors(output_tokens)
    )


def formula_errors(output_tokens: float) -> FormulaErrors:
    """They are other ones for short answers, whose streams live in the shadow of the prompts around them."""
    return LONG_ANSWERS if output_tokens >= LONG_ANSWER_TOKENS else SHORT_ANSWERS
