"""What a pool's formula of times learns from engines that say what cannot be."""

from __future__ import annotations

import pytest

from router.core.latency_model import MAX_RUNNING, LatencyModel, pairs_of


def first_token_s(latency_model: LatencyModel) -> list[float]:
    return [latency_model.first_token_s(1_000, pairs_of(1_000, 1_000), running) for running in (0, 10, 60)]


def taught(running: int) -> LatencyModel:
    """By answers beside none to 30 others, and between them once by some beside so many."""
    latency_model = LatencyModel()
    for number in range(600):
        tokens, beside = (50, 500, 3_000)[number % 3], number % 31
        lies = 300 <= number < 310
        observed_s = 0.02 + tokens * 1e-4 + tokens * beside * 2e-7
        latency_model.saw_first_token(observed_s, tokens, pairs_of(tokens, tokens), running if lies else beside)
        latency_model.saw_tokens(100 * (0.02 + 0.001 * beside), 100, running if lies else beside, 0.0)
    return latency_model


@pytest.mark.parametrize("running", [MAX_RUNNING + 1, 100_000, 2**53])
def test_a_few_answers_beside_a_count_that_cannot_be_change_nothing_for_long(running: int) -> None:
    """Fault: what others cost a first token was taken for nothing ever after."""
    well, hostile = taught(5), taught(running)
    assert first_token_s(hostile) == pytest.approx(first_token_s(well), rel=0.02)
    assert hostile.token_s(30) == pytest.approx(well.token_s(30), rel=0.02)
