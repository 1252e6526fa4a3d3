"""What cannot be launched is refused, with the arithmetic and with what would do."""

from __future__ import annotations

import msgspec
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
        # dividing one GPU's bandwidth by these weights is a mistake for this reason
        (Node("n", H100, 1, BF16_70B), 1, WeightsDoNotFit, "141.2 GB.*80.0 GB.*72.0 GB.*; 2 GPUs would hold them"),
        (Node("n", H100, 1, LLAMA_70B), 10_000, ContextBeyondKv, "10,000 tokens × 163,840 bytes.*1.6 GB.*1.4 GB"),
        (Node("n", H100, 16, LLAMA_70B), 1, TensorParallelAcrossNodes, "at most 8"),
        (Node("n", H100, 3, LLAMA_70B), 1, HeadsNotDivisible, "64 attention heads, which 3 GPUs"),
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
    with pytest.raises(WeightsDoNotFit, match="not even 8 GPUs would"):
        require_fit(Node("n", small, 8, BF16_70B), 1)


@pytest.mark.parametrize(
    ("gpus", "context_tokens", "enough"), [(1, 100_000, 2), (1, 450_000, 4), (2, 450_000, 4), (2, 1_400_000, 8)]
)
def test_of_a_context_that_does_not_fit_the_cards_that_would_hold_it_are_told(
    gpus: int, context_tokens: int, enough: int
) -> None:
    node = Node("n", H100, gpus, LLAMA_70B)
    with pytest.raises(ContextBeyondKv, match=f"; {enough} GPUs would hold it$"):
        require_fit(node, context_tokens)
    require_fit(msgspec.structs.replace(node, gpus=enough), context_tokens)
    with pytest.raises(ContextBeyondKv):
        require_fit(msgspec.structs.replace(node, gpus=enough // 2), context_tokens)


def test_a_context_that_no_machine_holds_is_told_so() -> None:
    with pytest.raises(ContextBeyondKv, match="; not even 8 GPUs would hold it: shorten the context, or"):
        require_fit(Node("n", H100, 2, LLAMA_70B), 90_000_000)
    alone = msgspec.structs.replace(H100, per_node=1)
    with pytest.raises(ContextBeyondKv, match="; not even 1 GPU would hold it"):
        require_fit(Node("n", alone, 1, LLAMA_70B), 90_000)


def test_cards_that_would_hold_a_context_hold_the_adapters_beside_it() -> None:
    node = Node("n", H100, 1, LLAMA_70B, adapter_bytes=1e9)
    with pytest.raises(ContextBeyondKv, match=r"; 4 GPUs would hold it$"):
        require_fit(node, 440_000)
    require_fit(msgspec.structs.replace(node, gpus=2, adapter_bytes=0), 440_000)


def test_what_fits_is_let_through_to_its_last_token() -> None:
    for gpu in GPUS.values():
        precision = Precision.BF16 if gpu is A100 else Precision.FP8
        for model in MODELS.values():
            node = Node("n", gpu, 8, precision.of(model))
            require_fit(node, node.kv_capacity_tokens)
            with pytest.raises(ContextBeyondKv):
                require_fit(node, node.kv_capacity_tokens + 1)
    require_fit(Node("n", B200, 1, Precision.NVFP4.of(LLAMA_8B)), 8_192)
