"""What cannot be launched is refused, with the arithmetic and with what would do."""

from __future__ import annotations

import pytest

from contracts.errors import ConfigError
from engines.performance.catalog import A100, B200, GPUS, H100, LLAMA_8B, LLAMA_70B, MODELS
from engines.performance.fit import (
    ContextBeyondKv,
    HeadsNotDivisible,
    PrecisionNotSupported,
    TensorParallelAcrossNodes,
    WeightsDoNotFit,
    require_fit,
)
from engines.performance.hardware import Gpu
from engines.performance.precision import Precision
from engines.performance.roofline import Node

BF16_70B = Precision.BF16.of(LLAMA_70B)


@pytest.mark.parametrize(
    ("node", "context_tokens", "kind", "said"),
    [
        # dividing one card's bandwidth by these weights is a mistake for this reason
        (Node("n", H100, 1, BF16_70B), 1, WeightsDoNotFit, "141.2 GB.*80.0 GB.*72.0 GB.*; 2 cards would hold them"),
        (Node("n", H100, 1, LLAMA_70B), 10_000, ContextBeyondKv, "10,000 tokens × 163,840 bytes.*1.6 GB.*1.4 GB"),
        (Node("n", H100, 16, LLAMA_70B), 1, TensorParallelAcrossNodes, "at most 8"),
        (Node("n", H100, 3, LLAMA_70B), 1, HeadsNotDivisible, "64 attention heads, which 3 cards"),
        (Node("n", A100, 4, LLAMA_70B), 1, PrecisionNotSupported, "A100 has no units for fp8: choose bf16, or"),
        (
            Node("n", H100, 4, Precision.NVFP4.of(LLAMA_70B)),
            1,
            PrecisionNotSupported,
            "H100 has no units for nvfp4: choose bf16 or fp8",
        ),
    ],
)
def test_an_impossible_launch_is_refused(node: Node, context_tokens: int, kind: type[ConfigError], said: str) -> None:
    with pytest.raises(kind, match=said):
        require_fit(node, context_tokens)


def test_a_model_that_no_machine_holds_is_told_so() -> None:
    small = Gpu("small", 1e12, 1e12, 8e9, 1e12, 1e11)
    with pytest.raises(WeightsDoNotFit, match="not even 8 cards would"):
        require_fit(Node("n", small, 8, BF16_70B), 1)


def test_what_fits_is_let_through_to_its_last_token() -> None:
    for gpu in GPUS.values():
        precision = Precision.BF16 if gpu is A100 else Precision.FP8
        for model in MODELS.values():
            node = Node("n", gpu, 8, precision.of(model))
            require_fit(node, node.kv_capacity_tokens)
            with pytest.raises(ContextBeyondKv):
                require_fit(node, node.kv_capacity_tokens + 1)
    require_fit(Node("n", B200, 1, Precision.NVFP4.of(LLAMA_8B)), 8_192)
