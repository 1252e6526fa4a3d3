"""Counters and histograms of one engine, kept as plain numbers because every token updates them."""

from __future__ import annotations

from bisect import bisect_left


class Histogram:
    """Counts of observations by upper bound, in seconds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Add one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, in Prometheus's form."""
        running = 0
        result: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            result.append((bound, float(running)))
        return result


FIRST_TOKEN_BOUNDS_S = (
    0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60,
)  # fmt: skip
TOKEN_BOUNDS_S = (
    0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 1, 2,
)  # fmt: skip
REQUEST_BOUNDS_S = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 800)
STEP_BOUNDS_S = tuple(0.0005 * 1.3**step for step in range(40))
STAGE_BOUNDS_S = tuple(0.001 * 1.62**step for step in range(30))
STAGES = ("request_process", "prefill_forward", "chunked_prefill")
"""SGLang's names of the stages: from arrival at the engine's thread to the queue, during a step or a block of one; from
admission to the end of the prompt; and each chunk of a prompt except the last, from the end of the chunk before."""


class Stats:
    """Statistics that the engine's thread writes and any thread reads; a reader may see a partly counted step."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.requests = 0
        self.aborted_requests = 0
        self.broken_sequences = 0
        """Number of sequences that ended because the model computed NaN or infinity."""
        self.draft_checks = 0
        """Checks of one sequence's drafts."""
        self.drafts = 0
        self.accepted_drafts = 0
        self.steps = 0
        self.step_s = Histogram(STEP_BOUNDS_S)
        self.first_token_s = Histogram(FIRST_TOKEN_BOUNDS_S)
        self.inter_token_s = Histogram(TOKEN_BOUNDS_S)
        self.request_s = Histogram(REQUEST_BOUNDS_S)
        self.queue_s = Histogram(REQUEST_BOUNDS_S)
        self.stages_s = {stage: Histogram(STAGE_BOUNDS_S) for stage in STAGES}
        self.throughput = 0.0
        """Generated tokens per second over the last whole window."""
        self.hit_rate = 0.0
        """Share of prompt tokens found in the cache, over the last step with prompts, like SGLang's gauge."""
        self._window_start_s: float | None = None
        self._window_first = 0
        self._counted_prompt = self._counted_cached = 0
        """`prompt_tokens` and `cached_tokens` when `hit_rate` was last set."""

    @property
    def accept_length(self) -> float:
        """Tokens per check of drafts, including the target's own; 0 before the first check."""
        return 1 + self.accepted_drafts / self.draft_checks if self.draft_checks else 0.0

    @property
    def accept_rate(self) -> float:
        """Share of drafts that were accepted."""
        return self.accepted_drafts / self.drafts if self.drafts else 0.0

    def count_drafts(self, drafts: int, accepted: int) -> None:
        """Count a check of one sequence's drafts."""
        self.draft_checks += 1
        self.drafts += drafts
        self.accepted_drafts += accepted

    def count_step(self, now_s: float, elapsed_s: float) -> None:
        """Count a step whose tokens are already counted."""
        self.steps += 1
        self.step_s.observe(elapsed_s)
        if new := self.prompt_tokens - self._counted_prompt:
            self.hit_rate = (self.cached_tokens - self._counted_cached) / new
            self._counted_prompt, self._counted_cached = self.prompt_tokens, self.cached_tokens
        if self._window_start_s is None:
            self._window_start_s = now_s - elapsed_s
        window_s = now_s - self._window_start_s
        if window_s >= 1.0:
            self.throughput = (self.generation_tokens - self._window_first) / window_s
            self._window_start_s, self._window_first = now_s, self.generation_tokens

    def idle(self) -> None:
        """Set the throughput to 0 and restart its window, because no request runs."""
        self.throughput = 0.0
        self._window_start_s, self._window_first = None, self.generation_tokens
