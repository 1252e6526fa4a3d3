"""Latency as objectives define it: the first token and the later tokens have separate numbers.

Its labels are tier, length class, model, pool and side of a rollout. Models and pools come from the desired state, and
never from a client. Requests that yield (`contracts.service_class`) are left out: they wait on purpose.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter

from contracts.length_class import length_class
from contracts.split import Side
from gateway.observability.loop_histogram import LoopHistogram, Series
from gateway.observability.measurement import Measurement

FIRST_TOKEN_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
TOKEN_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.15, 0.2, 0.5, 1.0, 5.0,
)  # fmt: skip
STALL_BUCKETS_S = (0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
LABELS = ("tier", "length", "model", "pool", "side")


class Gaps(Protocol):
    """Gaps between one attempt's tokens."""

    @property
    def gap_counts(self) -> Sequence[int]:
        """Times between arrivals by bucket of `TOKEN_BUCKETS_S`."""

    @property
    def decode_s(self) -> float:
        """Sum of the gaps."""


class LatencyMetrics:
    """Latency metrics of one gateway, in the given registry. Objectives' bounds are bounds of its buckets."""

    def __init__(self, registry: CollectorRegistry) -> None:
        histogram = functools.partial(LoopHistogram, registry=registry)
        by = "by tier, length class of the prompt, model, pool, and side of the model's split"
        self._first_token = histogram(
            "slipstream_time_to_first_token_seconds",
            f"Time from the arrival of a request until its first generated text left the gateway, {by}. An empty pool "
            "means that the request was answered from another request's generation.",
            LABELS,
            buckets=FIRST_TOKEN_BUCKETS_S,
        )
        self._per_token = histogram(
            "slipstream_time_per_output_token_seconds",
            f"Mean time per token of a response after its first token, for responses that the engine ended, {by}.",
            LABELS,
            buckets=TOKEN_BUCKETS_S,
        )
        self._longest_gap = histogram(
            "slipstream_longest_gap_seconds",
            f"Longest time between two consecutive arrivals of a response's tokens, without client stalls, {by}.",
            LABELS,
            buckets=TOKEN_BUCKETS_S,
        )
        self._between_tokens = histogram(
            "slipstream_inter_token_seconds",
            f"Time between two consecutive arrivals of a response's tokens, without delays by slow clients, {by}.",
            LABELS,
            buckets=TOKEN_BUCKETS_S,
        )
        self._gaps = Counter(
            "slipstream_gaps_over_100ms",
            f"Times of more than 100 ms between two consecutive arrivals of a response's tokens, {by}.",
            LABELS,
            registry=registry,
        )
        self._stalls = functools.cache(
            histogram(
                "slipstream_client_stall_seconds",
                "Time for which a client's connection accepted no more of its response, for requests where this "
                "happened, by tier.",
                ["tier"],
                buckets=STALL_BUCKETS_S,
            ).labels
        )
        by_pool = "by pool, for engines that report it with their responses, such as embedded engines"
        self._engine_queue = functools.cache(
            histogram(
                "slipstream_engine_queue_seconds",
                f"Time for which requests waited in the engine's queue, {by_pool}.",
                ["pool"],
                buckets=FIRST_TOKEN_BUCKETS_S,
            ).labels
        )
        self._engine_prefill = functools.cache(
            histogram(
                "slipstream_engine_prefill_seconds",
                f"Time from a request's admission by the engine to the end of its prefill, {by_pool}.",
                ["pool"],
                buckets=FIRST_TOKEN_BUCKETS_S,
            ).labels
        )
        self._engine_grammar = functools.cache(
            histogram(
                "slipstream_engine_grammar_seconds",
                "Time for which requests with a schema, tool or pattern waited for its grammar to be compiled, "
                f"before they entered the engine's queue, {by_pool}.",
                ["pool"],
                buckets=FIRST_TOKEN_BUCKETS_S,
            ).labels
        )
        self._series = functools.cache(self._made_for)

    def observe(self, tier: str, model: str, of: Measurement, gaps_seen: Gaps | None = None) -> None:
        """Add one request, complete or not. gaps_seen: the measured attempt's."""
        if of.client_stall_ms:
            self._stalls(tier).observe(of.client_stall_ms / 1e3)
        if of.pool is not None and of.engine_queue_ms is not None and of.engine_prefill_ms is not None:
            self._engine_queue(of.pool).observe(of.engine_queue_ms / 1e3)
            self._engine_prefill(of.pool).observe(of.engine_prefill_ms / 1e3)
            if of.engine_grammar_ms:
                self._engine_grammar(of.pool).observe(of.engine_grammar_ms / 1e3)
        if of.ttft_ms is None:
            return
        length = length_class(of.prompt_tokens or 0)
        first_token, per_token, longest_gap, between_tokens, gaps = self._series(
            tier, length, model, of.pool or "", of.side or Side.BASELINE
        )
        first_token.observe(of.ttft_ms / 1e3)
        if of.tpot_ms is not None:
            per_token.observe(of.tpot_ms / 1e3)
        if of.itl_max_ms is not None:
            longest_gap.observe(of.itl_max_ms / 1e3)
            if gaps_seen is not None:
                between_tokens.add(gaps_seen.gap_counts, gaps_seen.decode_s)
        if of.gaps_over_100ms:
            gaps.inc(of.gaps_over_100ms)

    def _made_for(self, *labels: str) -> tuple[Series, Series, Series, Series, Counter]:
        """Create all of them, so that none is missing from a ratio."""
        histograms = (self._first_token, self._per_token, self._longest_gap, self._between_tokens)
        first_token, per_token, longest_gap, between_tokens = (histogram.labels(*labels) for histogram in histograms)
        return first_token, per_token, longest_gap, between_tokens, self._gaps.labels(*labels)
