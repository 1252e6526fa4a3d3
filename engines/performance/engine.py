"""A modelled inference engine with continuous batching, chunked prefill, a radix cache and a bounded KV pool. The
caller advances its clock.

Each step generates one token for every running sequence and fills the rest of its token budget with prompts, first come
first served. A prompt starts when its uncached part fits in the free memory; when growth exhausts the pool, the newest
sequence is retracted and later recomputed. Steps without a prompt are run in one stretch until something can change,
which makes it feasible to simulate a day.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable

import msgspec

from engines.performance.block_cache import BlockCache, Listener
from engines.performance.job import Job
from engines.performance.roofline import StepTimes, pairs


class EngineLimits(msgspec.Struct, frozen=True):
    """Launch settings of the modelled engine."""

    batch_tokens: int = 8_192
    """Tokens per step, prompts and running sequences together."""
    max_running: int = 256
    block_tokens: int = 512
    """Granularity of the prefix cache."""
    capacity_tokens: int = 0
    """Size of the KV pool; 0 for the tokens that fit the node's memory."""
    watermark: float = 0.01
    """Share of the pool that must stay free when a prompt starts."""


class FirstToken(msgspec.Struct, frozen=True):
    """A job's prompt is done."""

    job: Job


class Ended(msgspec.Struct, frozen=True):
    """A job has its last token."""

    job: Job


class Retracted(msgspec.Struct, frozen=True):
    """A running job lost its memory and waits again."""

    job: Job


Progress = FirstToken | Ended | Retracted


def no_noise() -> float:
    """Return 1: every step takes exactly the time that the roofline predicts."""
    return 1.0


class ModelledEngine:
    """The caller may `submit` and `abort` at any time, and must call `finish_step` at `step_ends_at`. now: seconds."""

    def __init__(
        self,
        roofline: StepTimes,
        limits: EngineLimits = EngineLimits(),  # noqa: B008  frozen
        noise: Callable[[], float] = no_noise,
        listener: Listener | None = None,
    ) -> None:
        self.roofline = roofline
        self.limits = limits
        self.capacity_tokens = limits.capacity_tokens or roofline.kv_capacity_tokens
        self.cache = BlockCache(listener)
        self.waiting: deque[Job] = deque()
        self.prefilling: deque[Job] = deque()
        self.step_ends_at: float | None = None
        self.busy_s = 0.0
        self.prefilled_tokens = 0
        self.decoded_tokens = 0
        self._noise = noise
        self._running = 0
        self._context_tokens = 0
        """Context tokens of all running sequences together."""
        self._private_tokens = 0
        """Tokens of memory in use outside the cache."""
        self._step = 0
        self._ends: list[tuple[int, int, Job]] = []
        self._stack: list[Job] = []
        """Running jobs, newest last. Ended jobs remain in it until they are popped."""
        self._numbered = 0
        self._chunks: list[tuple[Job, int]] = []
        self._stretch = 0
        """Number of steps under way; more than one only while no prompt is being prefilled."""
        self._began_at = 0.0
        self._factor = 1.0

    @property
    def running(self) -> int:
        """Sequences in the batch, including prompts in prefill."""
        return self._running + len(self.prefilling)

    @property
    def used_tokens(self) -> int:
        """Tokens of memory that cannot be evicted."""
        return self.cache.locked * self.limits.block_tokens + self._private_tokens

    def submit(self, job: Job, now: float) -> None:
        """Queue a request. Its first step begins when the current step ends, or now if the engine is idle.

        Raises ValueError if the prompt is shorter than its blocks, which were then cut to another engine's block size.
        """
        if len(job.blocks) * self.limits.block_tokens > job.prompt_tokens:
            raise ValueError(
                f"{job.id}: {len(job.blocks)} blocks of {self.limits.block_tokens} tokens are more than the prompt's "
                f"{job.prompt_tokens}; cut them to the engine's block_tokens."
            )
        self.waiting.append(job)
        if self.step_ends_at is None:
            self._begin(now)
        elif self._stretch > 1 and len(self.waiting) == 1:
            self._cut(now)

    def abort(self, job: Job, now: float) -> None:
        """Drop a request in any state. A step under way ends as planned."""
        if job.ended:
            return
        job.ended = True
        if job in self.waiting:
            self.waiting.remove(job)
        elif job in self.prefilling:
            self.prefilling.remove(job)
            self._chunks = [chunk for chunk in self._chunks if chunk[0] is not job]
            self._free(job)
        elif job.running:
            if self._stretch > 1:
                self._cut(now)
            self._leave(job)

    def finish_step(self, now: float) -> list[Progress]:
        """End the step that is due now, begin the next one and return the progress."""
        progress: list[Progress] = []
        steps, self._stretch = self._stretch, 0
        self._step += steps
        grown = self._running * steps
        self._context_tokens += grown
        self._private_tokens += grown
        self.decoded_tokens += grown
        while self._ends and self._ends[0][0] <= self._step:
            job = heapq.heappop(self._ends)[2]
            if job.running and job.ends_at_step <= self._step:
                self._leave(job)
                job.ended = True
                progress.append(Ended(job))
        for job, tokens in self._chunks:
            job.prefilled += tokens
            self.prefilled_tokens += tokens
            if job.prefilled >= job.to_prefill:
                self._prefill_done(job, progress)
        self._chunks = []
        self._begin(now, progress)
        return progress

    # a step

    def _begin(self, now: float, progress: list[Progress] | None = None) -> None:
        self._admit()
        if self._running and self._room() < self._running:
            self._make_room(progress)
            self._admit()
        prefill_tokens, prefill_pairs = self._plan()
        if prefill_tokens:
            self._stretch = 1
            taken_s = self.roofline.step_s(prefill_tokens, prefill_pairs, self._running, self._context_tokens)
        elif self._running:
            until_end = max(self._next_end() - self._step, 1)
            self._stretch = max(1, min(until_end, self._room() // self._running))
            taken_s = self.roofline.decode_run_s(self._stretch, self._running, self._context_tokens)
        else:
            self.step_ends_at = None
            return
        self._evict_for(self._running * self._stretch)
        self._factor = self._noise()
        self._began_at = now
        self.busy_s += taken_s * self._factor
        self.step_ends_at = now + taken_s * self._factor

    def _plan(self) -> tuple[int, float]:
        """Plan the next chunks of the prompts in prefill within the budget; return their tokens and attention pairs."""
        budget = max(self.limits.batch_tokens - self._running, 1)
        total, all_pairs = 0, 0.0
        for job in self.prefilling:
            if budget <= 0:
                break
            tokens = min(budget, job.to_prefill - job.prefilled)
            all_pairs += pairs(tokens, job.prefilled)
            self._chunks.append((job, tokens))
            total += tokens
            budget -= tokens
        return total, all_pairs

    def _admit(self) -> None:
        """Start waiting prompts that fit, in order, up to the number that the next step can begin."""
        budget = self.limits.batch_tokens - self._running
        budget -= sum(job.to_prefill - job.prefilled for job in self.prefilling)
        while self.waiting and budget > 0 and self.running < self.limits.max_running:
            job = self.waiting[0]
            held = self.cache.match(job.blocks)
            # the last token is always computed, because its logits yield the first token of the answer
            while held and held * self.limits.block_tokens >= job.to_prefill:
                held -= 1
            path = job.blocks[:held]
            self.cache.lock(path)
            needed = job.to_prefill - held * self.limits.block_tokens
            spare = self.capacity_tokens * (1 - self.limits.watermark) - self.used_tokens
            if needed > spare and self.running:
                self.cache.unlock(path)
                return
            self.waiting.popleft()
            job.held_blocks = path
            job.prefilled = job.to_prefill - needed
            if job.retractions == 0:
                job.cached_tokens = job.prefilled
            job.private_tokens = needed
            self._private_tokens += needed
            self._evict_for(0)
            self.prefilling.append(job)
            budget -= needed

    def _prefill_done(self, job: Job, progress: list[Progress]) -> None:
        self.prefilling.remove(job)
        self.cache.unlock(job.held_blocks)
        self.cache.lock(job.blocks)
        job.held_blocks = job.blocks
        # blocks that other sequences cached meanwhile are now shared; the rest moved from private to cached
        own = job.to_prefill - len(job.blocks) * self.limits.block_tokens
        self._private_tokens += own - job.private_tokens
        job.private_tokens = own
        if job.retractions == 0:
            progress.append(FirstToken(job))
        job.generated += 1
        if job.generated >= job.output_tokens:
            self._free(job)
            job.ended = True
            progress.append(Ended(job))
            return
        job.running = True
        job.started_at_step = self._step
        job.ends_at_step = self._step + job.output_tokens - job.generated
        self._numbered += 1
        heapq.heappush(self._ends, (job.ends_at_step, self._numbered, job))
        self._stack.append(job)
        self._running += 1
        self._context_tokens += job.to_prefill + 1
        job.private_tokens += 1
        self._private_tokens += 1

    def _leave(self, job: Job) -> None:
        """Remove a job from the batch and free its memory."""
        grown = self._step - job.started_at_step
        job.running = False
        job.generated += grown
        job.private_tokens += grown
        self._running -= 1
        self._context_tokens -= job.to_prefill + 1 + grown
        if job.answer_blocks and job.generated >= job.output_tokens:
            self.cache.lock(job.answer_blocks)
            self.cache.unlock(job.answer_blocks)
        self._free(job)

    def _free(self, job: Job) -> None:
        self.cache.unlock(job.held_blocks)
        job.held_blocks = ()
        self._private_tokens -= job.private_tokens
        job.private_tokens = 0

    # memory

    def _room(self) -> int:
        """Tokens that can still be written if the idle cache is evicted."""
        return self.capacity_tokens - self.used_tokens

    def _make_room(self, progress: list[Progress] | None) -> None:
        while self._running > 1 and self._room() < self._running:
            job = self._stack.pop()
            if not job.running:
                continue
            self._leave(job)
            job.retractions += 1
            job.to_prefill = job.prompt_tokens + job.generated
            job.prefilled = 0
            self.waiting.appendleft(job)
            if progress is not None:
                progress.append(Retracted(job))

    def _evict_for(self, tokens: int) -> None:
        block_tokens = self.limits.block_tokens
        over = len(self.cache) * block_tokens + self._private_tokens + tokens - self.capacity_tokens
        if over > 0:
            self.cache.evict(-(-over // block_tokens))

    # stretches

    def _next_end(self) -> int:
        ends = self._ends
        while ends and not (ends[0][2].running and ends[0][2].ends_at_step == ends[0][0]):
            heapq.heappop(ends)
        while self._stack and not self._stack[-1].running:
            self._stack.pop()
        return ends[0][0] if ends else self._step + 1

    def _cut(self, now: float) -> None:
        """End the stretch at the next step boundary, because a request arrived or was aborted during it."""
        passed = max(now - self._began_at, 0.0) / self._factor
        first = self.roofline.decode_s(self._running, self._context_tokens)
        growth = self.roofline.read_s_per_token * self._running
        # smallest whole k with  k·first + growth·k(k−1)/2  ≥  passed
        linear = first - growth / 2
        # where reading costs nothing:  k·first  ≥  passed
        exact = (math.sqrt(linear * linear + 2 * growth * passed) - linear) / growth if growth else passed / first
        steps = math.ceil(exact)
        steps = max(1, min(steps, self._stretch))
        if steps < self._stretch and self.step_ends_at is not None:
            self._stretch = steps
            taken_s = self.roofline.decode_run_s(steps, self._running, self._context_tokens) * self._factor
            self.busy_s -= self.step_ends_at - (self._began_at + taken_s)
            self.step_ends_at = self._began_at + taken_s
