"""Figures of the engines beside each other say how far their rounds lie apart, and which builds they are of."""

from __future__ import annotations

import sys

import pytest
from safetensors.torch import load_file

from benchmarks.engine_cpu_rivals.bandwidth import read_weights, shares
from benchmarks.engine_cpu_rivals.build import said, versions
from benchmarks.engine_cpu_rivals.figures import Cells, against_best, tables
from benchmarks.engine_cpu_rivals.rival import Sample
from engines.embedded.models.config import ModelConfig
from tests.engines.embedded.tiny import SHIPPED


def rounds(*tokens_per_s: int) -> dict[int, list[Sample]]:
    return {8: [Sample(each, 1.0, 0.5, [0.1, 0.2], [0.01] * 4) for each in tokens_per_s]}


def test_ratios_have_the_range_that_the_rounds_allow() -> None:
    cells: Cells = {"embedded": rounds(800, 1000, 1200), "embedded-int8": rounds(9000), "other": rounds(400, 500, 600)}
    found = tables(cells)
    assert [found[name]["embedded"]["8"] for name in ("tokens_per_s_least", "tokens_per_s", "tokens_per_s_most")] == [
        800, 1000, 1200,
    ]  # fmt: skip
    assert against_best(found, "embedded") == {"8": "2.00 (1.33 to 3.00) x other"}, "800 of 600 to 1,200 of 400"


def test_a_stream_is_a_share_of_the_memorys_speed() -> None:
    path = SHIPPED / "slipstream-chat"
    weights = sum(tensor.numel() for name, tensor in load_file(path / "model.safetensors").items() if tensor.ndim > 1)
    assert read_weights(ModelConfig.read(path)) == weights
    one = {1: [Sample(8, 1.0, 0.5, [0.1], [0.01, 0.02, 0.03])]}
    found = shares({"embedded": one, "embedded-int8": one, "vllm": one, "llama.cpp-f16": {8: one[1]}}, path, 1e9)
    assert found == {"embedded": round(weights * 2 / 0.02 / 1e9, 3), "embedded-int8": round(weights / 0.02 / 1e9, 3)}


def test_a_build_is_named_and_what_cannot_be_named_says_so() -> None:
    assert versions(sys.executable, "pytest") == f"pytest {pytest.__version__}"
    assert versions(sys.executable, "no-such-package").startswith("unknown: ")
    assert said(sys.executable, "print('AVX2 = 1 |\\n FMA = 1')") == "AVX2 = 1 | FMA = 1"
