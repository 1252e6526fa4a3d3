"""Greedy text is the same on any number of threads, in any batch."""

from __future__ import annotations

import pytest
import torch

from engines.embedded.models.linears import PlainLinears
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.linears import Int8Linears
from tests.engines.embedded.test_invariance import make, prompts, serve
from tests.engines.embedded.tiny import SHIPPED, request

pytest.importorskip("numba")
FOLDER = SHIPPED / "slipstream-code"
BATCHES = {"alone": 1, "some": 5, "all": 64}


@pytest.mark.parametrize(
    ("count", "tokens", "threads_given"),
    [(6, 16, (1, 2)), pytest.param(45, 48, (1, 2, 4), marks=pytest.mark.nightly)],
    ids=["small", "whole"],
)
@pytest.mark.parametrize("int8", [False, True])
def test_greedy_text_is_the_same_on_any_number_of_threads_and_in_any_batch(
    int8: bool, count: int, tokens: int, threads_given: tuple[int, ...]
) -> None:
    wanted = [
        request(f"{seed}-{at}", prompt, max_tokens=tokens, logprobs=0)
        for seed in range(1 if count < 12 else 5)
        for at, prompt in enumerate(prompts(seed, min(count, 12)))
    ]
    found = {}
    for threads in threads_given:

        def linears(dtype: torch.dtype, threads: int = threads) -> Int8Linears | PlainLinears:
            return Int8Linears(native=True, threads=threads) if int8 else PlainLinears(dtype, threads=threads)

        model = load_model(FOLDER, "bfloat16", linears)
        assert model.native is not None
        for name, most in BATCHES.items():
            answers = serve(make(FOLDER, model, max_running=most, max_batch_tokens=48), wanted)
            found[threads, name] = {rid: [(one.id, one.logprob) for one in own] for rid, own in answers.items()}
    expected = found.pop((1, "alone"))
    assert all(len(own) == tokens for own in expected.values())
    compared = 0
    for way, texts in found.items():
        for rid, told in texts.items():
            assert told == expected[rid], (way, rid)
            compared += tokens
    print(f"{compared} tokens compared, int8 {int8}")
    assert compared >= (200 if count < 12 else 4_000)
