"""The memory that adapters' places take, against a 70B Llama's own layers, and what no longer fits beside them."""

from __future__ import annotations

import pytest

from contracts.errors import ConfigError
from engines.performance.catalog import LLAMA_70B
from tests.tools.launch.launched import launch_of, options_of, pool_of, rendered
from tools.launch.adapter_memory import ADAPTERS_IN_BATCH, adapter_bytes

HIDDEN, KEYS, BETWEEN, LAYERS = 8_192, 1_024, 28_672, 80
RANK_OF_ONE_LAYER = (
    2 * (HIDDEN + HIDDEN)  # q, o
    + 2 * (HIDDEN + KEYS)  # k, v
    + 3 * (HIDDEN + BETWEEN)  # gate, up, down
)


def test_on_one_card_they_take_what_their_matrices_take() -> None:
    exact = LAYERS * RANK_OF_ONE_LAYER * 64 * 2
    assert adapter_bytes(LLAMA_70B, 64, 1, 1) == pytest.approx(exact, rel=0.03)
    assert adapter_bytes(LLAMA_70B, 64, 5, 1) == pytest.approx(5 * exact, rel=0.03)
    assert adapter_bytes(LLAMA_70B, 64, 100, 1) == adapter_bytes(LLAMA_70B, 64, ADAPTERS_IN_BATCH, 1)
    assert adapter_bytes(LLAMA_70B, 64, 0, 1) == 0


def test_what_each_card_has_is_counted_on_each() -> None:
    shared = 7 * HIDDEN * LAYERS * 64 * 2
    more = adapter_bytes(LLAMA_70B, 64, 1, 8) - adapter_bytes(LLAMA_70B, 64, 1, 1)
    assert more == pytest.approx(7 * shared)


@pytest.mark.parametrize("driver", ["sglang", "vllm"])
def test_fewer_requests_run_beside_them(driver: str) -> None:
    def running(**given: int) -> int:
        option = {"sglang": "--max-running-requests", "vllm": "--max-num-seqs"}[driver]
        launch = launch_of(adapter_rank=256)
        spec = rendered(pool_of(driver, **given), launch, context_tokens=100_000, max_running=None)
        return int(options_of(spec)[option][0])

    assert 0 < running(max_adapters=8) < running()


def test_more_than_the_cards_hold_is_refused_with_the_arithmetic() -> None:
    launch = launch_of(model="/models/chat", shape="llama-70b", gpu="h100", adapter_rank=256, memory_fraction=0.88)
    rendered(pool_of("sglang"), launch, cards=2)
    with pytest.raises(ConfigError, match=r"do not fit.* and \d+\.\d GB for LoRA adapters; "):
        rendered(pool_of("sglang", max_adapters=8), launch, cards=2)
    with pytest.raises(ConfigError, match=r"weights − \d+\.\d GB for LoRA adapters leave"):
        rendered(pool_of("sglang", max_adapters=8), launch, cards=4, context_tokens=1_000_000)
