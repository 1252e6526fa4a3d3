"""The engine model against figures its vendors have published for H100 and H200, all in FP8 unless said otherwise.

Sources: NVIDIA NIM 1.8 benchmark page (70B, two H100, 5,000 in and 500 out); TensorRT-LLM performance pages v0.5 (first
token of one request), v0.14 and v1.0 (output tokens per second at saturation).
"""

from __future__ import annotations

import pytest

from engines.performance.catalog import node
from engines.performance.engine import Ended, EngineLimits, FirstToken, ModelledEngine
from engines.performance.job import Job
from engines.performance.precision import Precision
from engines.performance.roofline import Roofline
from planning.measured_error import FIRST_TOKEN, SATURATED_RATE, TIME_PER_TOKEN, Bounds, Kind

TOLERANCE = 0.20
KINDS: dict[str, Kind] = {
    "70b-fp8-8xh100": ("H100", Precision.FP8, 8),
    "70b-fp8-4xh100": ("H100", Precision.FP8, 4),
    "70b-fp8-2xh100": ("H100", Precision.FP8, 2),
    "70b-fp8-8xh200": ("H200", Precision.FP8, 8),
    "8b-fp8-1xh100": ("H100", Precision.FP8, 1),
    "8b-fp8-1xh200": ("H200", Precision.FP8, 1),
    "7b-fp8-1xh100": ("H100", Precision.FP8, 1),
    "32b-bf16-2xh100": ("H100", Precision.BF16, 2),
}


def as_told(table: dict[Kind, Bounds], name: str, planned: float, published: float) -> bool:
    """Whether the error is within what a plan tells of it."""
    low, high = table[KINDS[name]]
    return low - 0.005 <= planned / published - 1 <= high + 0.005


def closed_loop(
    name: str, streams: int, prompt: int, answer: int, requests: int, spaced: bool = True
) -> tuple[float, float, float]:
    """Mean TTFT and time per token in ms, and output tokens per second, with so many requests always under way.

    spaced: the first ones begin at even distances; otherwise all at once.
    """
    roofline = Roofline(node(name))
    engine = ModelledEngine(roofline, EngineLimits(max_running=512))
    decode_s, prefill_s = roofline.decode_s(streams, streams * prompt), roofline.prefill_s(prompt)
    starts = [stream * (answer * decode_s / streams + prefill_s) * spaced for stream in range(streams)]
    began: dict[str, float] = {}
    first: dict[str, float] = {}
    ttft: list[float] = []
    tpot: list[float] = []
    ended: list[float] = []
    left, now = requests, 0.0
    while starts or engine.step_ends_at is not None:
        if starts and (engine.step_ends_at is None or starts[0] <= engine.step_ends_at):
            now, coming = starts.pop(0), 1
        else:
            assert engine.step_ends_at is not None
            now, coming = engine.step_ends_at, 0
            for news in engine.finish_step(now):
                if isinstance(news, FirstToken):
                    first[news.job.id] = now
                    ttft.append((now - began[news.job.id]) * 1e3)
                elif isinstance(news, Ended):
                    tpot.append((now - first[news.job.id]) / (answer - 1) * 1e3)
                    ended.append(now)
                    coming += 1
        for _ in range(min(coming, left)):
            left -= 1
            began[str(left)] = now
            engine.submit(Job(str(left), prompt, answer), now)
    assert len(ended) == requests
    edge = requests // 5
    rate = (requests - 2 * edge) * answer / (ended[-edge - 1] - ended[edge])
    return sum(ttft[edge:-edge]) / len(ttft[edge:-edge]), sum(tpot[edge:-edge]) / len(tpot[edge:-edge]), rate


@pytest.mark.parametrize(
    ("streams", "ttft_ms", "tpot_ms", "tokens_per_s"),
    [(1, 407, 18.6, 51.7), (5, 547, 21.8, 218), (25, 689, 38.8, 623), (50, 835, 59.7, 814), (100, 7_996, 92.9, 917)],
)
def test_70b_on_two_h100_as_concurrency_rises(
    streams: int, ttft_ms: float, tpot_ms: float, tokens_per_s: float
) -> None:
    """At 100 the KV pool is full and requests queue.

    How far apart the streams of the published run began is not said, and with equal lengths they stay so: its first
    tokens must lie between those of streams at even distances and of streams in step.
    """
    requests = max(15, streams * 8)
    ttft, tpot, rate = closed_loop("70b-fp8-2xh100", streams, 5_000, 500, requests)
    in_step, _, _ = closed_loop("70b-fp8-2xh100", streams, 5_000, 500, requests, spaced=False)
    print(
        f"TTFT {ttft:.0f} to {in_step:.0f} ({ttft_ms}), TPOT {tpot:.1f} ({tpot_ms}), {rate:.0f} tok/s ({tokens_per_s})"
    )
    assert tpot == pytest.approx(tpot_ms, rel=TOLERANCE)
    assert as_told(TIME_PER_TOKEN, "70b-fp8-2xh100", tpot, tpot_ms)
    assert rate == pytest.approx(tokens_per_s, rel=TOLERANCE)
    assert ttft * (1 - TOLERANCE) <= ttft_ms <= in_step * (1 + TOLERANCE)


@pytest.mark.parametrize(
    ("name", "prompt", "ttft_ms"),
    [
        ("70b-fp8-4xh100", 128, 26),
        ("70b-fp8-4xh100", 2_048, 109),
        ("7b-fp8-1xh100", 128, 7),
        ("7b-fp8-1xh100", 2_048, 36),
    ],
)
def test_first_token_of_one_request(name: str, prompt: int, ttft_ms: float) -> None:
    took_ms = Roofline(node(name)).prefill_s(prompt) * 1e3
    assert took_ms == pytest.approx(ttft_ms, rel=TOLERANCE)
    assert as_told(FIRST_TOKEN, name, took_ms, ttft_ms)


@pytest.mark.parametrize(
    ("name", "prompt", "answer", "tokens_per_s"),
    [
        ("70b-fp8-2xh100", 2_048, 128, 762),
        ("70b-fp8-2xh100", 128, 2_048, 6_651),
        ("70b-fp8-8xh100", 2_048, 128, 1_967),
        ("70b-fp8-8xh100", 128, 2_048, 15_190),
        ("70b-fp8-8xh200", 2_048, 128, 2_071),
        ("70b-fp8-8xh200", 128, 2_048, 19_266),
        ("8b-fp8-1xh100", 2_048, 128, 3_450),
        ("8b-fp8-1xh100", 128, 2_048, 18_995),
        ("8b-fp8-1xh200", 2_048, 128, 3_619),
        ("8b-fp8-1xh200", 128, 2_048, 22_949),
    ],
)
def test_output_tokens_at_saturation(name: str, prompt: int, answer: int, tokens_per_s: float) -> None:
    _, _, rate = closed_loop(name, 512, prompt, answer, 2_560)
    print(f"{name} {prompt}/{answer}: {rate:.0f} ({tokens_per_s}), {rate / tokens_per_s - 1:+.0%}")
    assert rate == pytest.approx(tokens_per_s, rel=TOLERANCE)
    assert as_told(SATURATED_RATE, name, rate, tokens_per_s)


def test_prefill_of_a_bf16_model() -> None:
    """15,928 prompt tokens/s: Qwen-32B, two H100, vLLM, one chunk of 8,192."""
    took_s = Roofline(node("32b-bf16-2xh100")).prefill_s(8_192)
    assert 8_192 / took_s == pytest.approx(15_928, rel=TOLERANCE)
    assert as_told(FIRST_TOKEN, "32b-bf16-2xh100", took_s, 8_192 / 15_928)
