"""What drivers read from an engine's own page, by pages that SGLang 0.5.23 has given (only the families that are read).

`chunked_prefill`: its own warm-up and a look at its health, then six requests of 150 tokens at once, prefilled 64 at a
time. `retractions`: ten of 100 tokens that generate up to 250 each, five at once, where there is memory for 600.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.errors import EngineFailed
from engines.drivers.counters import EngineCounts, EngineStages
from engines.drivers.sglang import SGLangDriver

RECORDED = Path(__file__).parent / "recorded"
DRIVER = SGLangDriver()


def test_queue_and_prefill_are_read_apart() -> None:
    counts = DRIVER.parse_counts((RECORDED / "sglang_0_5_23_chunked_prefill.prom").read_bytes())
    assert (counts.prompt_tokens, counts.completion_tokens) == (906, 39)
    # one warm-up and the six: the other of the eight that the histograms count was a look at its health
    assert counts.stages == EngineStages(
        queue_s=1.5762821800017264, prefill_s=1.666975395011832, requests=7, retractions=0
    )


def test_retractions_are_those_since_its_start() -> None:
    stages = DRIVER.parse_counts((RECORDED / "sglang_0_5_23_retractions.prom").read_bytes()).stages
    assert stages is not None
    assert (stages.requests, stages.retractions, round(stages.queue_s, 1), round(stages.prefill_s, 1)) == (
        11,
        2,
        24.6,
        0.4,
    )


def test_an_engine_that_has_served_nothing_has_spent_nothing() -> None:
    page = b'sglang:num_retracted_reqs{model_name="m"} 7.0\n'  # a gauge of the last step, not the counter
    assert DRIVER.parse_counts(page) == EngineCounts(0, 0, 0, EngineStages(0.0, 0.0, 0, 0))


def test_ranks_add_up() -> None:
    page = "".join(
        f'sglang:queue_time_seconds_sum{{dp_rank="{rank}"}} 1.5\n'
        f'sglang:queue_time_seconds_count{{dp_rank="{rank}"}} 9.0\n'
        f'sglang:num_requests_total{{dp_rank="{rank}"}} 3.0\n'
        f'sglang:queue_time_seconds_bucket{{dp_rank="{rank}",le="+Inf"}} 3.0\n'
        f'sglang:per_stage_req_latency_seconds_sum{{dp_rank="{rank}",stage="request_process"}} 90.0\n'
        f'sglang:per_stage_req_latency_seconds_sum{{dp_rank="{rank}",stage="prefill_forward"}} 0.25\n'
        f'sglang:per_stage_req_latency_seconds_count{{dp_rank="{rank}",stage="prefill_forward"}} 2.0\n'
        f'sglang:num_retracted_requests_total{{dp_rank="{rank}"}} 4.0\n'
        for rank in range(2)
    )
    assert DRIVER.parse_counts(page.encode()).stages == EngineStages(3.0, 0.5, 6, 8)


@pytest.mark.parametrize("told", ["sum{} soon", "sum{} "])
def test_a_stage_that_cannot_be_read_is_said_so(told: str) -> None:
    with pytest.raises(EngineFailed, match="cannot be read"):
        DRIVER.parse_counts(f"sglang:queue_time_seconds_{told}".encode())
