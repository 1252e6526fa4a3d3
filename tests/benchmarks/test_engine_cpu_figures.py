"""Figures of the engines beside each other say how far their rounds lie apart, and which builds they are of."""

from __future__ import annotations

import sys

import pytest

from benchmarks.engine_cpu_rivals.build import said, versions
from benchmarks.engine_cpu_rivals.figures import Cells, against_best, tables
from benchmarks.engine_cpu_rivals.rival import Sample


def rounds(*tokens_per_s: int) -> dict[int, list[Sample]]:
    return {8: [Sample(each, 1.0, 0.5, [0.1, 0.2], [0.01] * 4) for each in tokens_per_s]}


def test_ratios_have_the_range_that_the_rounds_allow() -> None:
    cells: Cells = {"embedded": rounds(800, 1000, 1200), "embedded-int8": rounds(9000), "other": rounds(400, 500, 600)}
    found = tables(cells)
    assert [found[name]["embedded"]["8"] for name in ("tokens_per_s_least", "tokens_per_s", "tokens_per_s_most")] == [
        800, 1000, 1200,
    ]  # fmt: skip
    assert against_best(found, "embedded") == {"8": "2.00 (1.33 to 3.00) x other"}, "800 of 600 to 1,200 of 400"


def test_a_build_is_named_and_what_cannot_be_named_says_so() -> None:
    assert versions(sys.executable, "pytest") == f"pytest {pytest.__version__}"
    assert versions(sys.executable, "no-such-package").startswith("unknown: ")
    assert said(sys.executable, "print('AVX2 = 1 |\\n FMA = 1')") == "AVX2 = 1 | FMA = 1"
