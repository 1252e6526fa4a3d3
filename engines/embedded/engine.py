"""The body of the step loop, which receives requests, schedules, runs the model and delivers the output.

One thread calls `step`; a test may call it directly. It handles token ids, sequences and pages, and knows no HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from contracts.errors import ConfigError, Overloaded, SlipstreamError
from engines.embedded.config import EngineConfig
from engines.embedded.draft_sources import make_source
from engines.embedded.drafter import Drafter
from engines.embedded.graphs import CudaCapture, DecodeGraphs
from engines.embedded.kv.events import BlockEvents
from engines.embedded.kv.pages import PagePool
from engines.embedded.kv.radix import RadixCache
from engines.embedded.kv.store import KVStore
from engines.embedded.models.llama import Llama
from engines.embedded.output import Delta, TokenLogprob
from engines.embedded.pooling import Pooling, vector_of
from engines.embedded.request import Request
from engines.embedded.runner import Ran, Runner
from engines.embedded.sampler import NO_TOKEN, Picked
from engines.embedded.scheduler import Scheduler, StepPlan
from engines.embedded.sequence import Sequence
from engines.embedded.stats import Stats
from engines.embedded.tree_checker import TreeChecker
from engines.tokenizer.text_stream import TextStream
from speculative.rules import accepted_prefix

logger = logging.getLogger(__name__)
SWEEP_EVERY_S = 0.1
HEARTBEAT_S = 15.0
"""Silence after which a preempted sequence emits an empty delta, so that the client does not suspect a failure."""


class Engine:
    """Serves requests step by step. Not thread-safe: `submit`, `abort` and `step` belong to one thread."""

    def __init__(
        self,
        model: Llama,
        store: KVStore,
        config: EngineConfig,
        text_stream: Callable[[], TextStream],
        clock: Callable[[], float] = time.monotonic,
        events: BlockEvents | None = None,
        pooling: Pooling | None = None,
    ) -> None:
        """text_stream: creates a decoder for one choice. clock: monotonic seconds. events: receives the changes of the
        cache. pooling: how the model computes vectors; None if it generates text."""
        self._pooling = pooling
        self.stats = Stats()
        self.dtype, self.device = model.dtype, model.device
        """Number format and device of the layers."""
        self.model = model
        self.store = store
        self.pages = PagePool(store.total_pages)
        self.events = BlockEvents() if events is None else events
        self.cache = RadixCache(self.pages, store.page_tokens, self.events, store.cached_pages)
        self.scheduler = Scheduler(config.scheduler, self.pages, self.cache, store.page_tokens, clock)
        self._drafter = Drafter(config.speculation, make_source(config.speculation, model, Path(config.model)))
        # graphs save time only on a GPU
        graphed = config.cuda_graphs and model.device.type == "cuda"
        graphs = DecodeGraphs(model, store, CudaCapture(), self._drafter.layers) if graphed else None
        self._runner = Runner(model, store, self._drafter.layers, graphs, pooling)
        if config.speculation.shape == "tree" and model.native is not None:
            raise ConfigError(
                "speculation.shape: tree is computed by PyTorch's operations; load the model with kernels = torch",
                param="speculation.shape",
            )
        self._trees = TreeChecker(model, store, self._drafter.layers)
        self._vocabulary = model.config.vocab_size
        self._text_stream = text_stream
        self._clock = clock
        self._swept_s = float("-inf")
        """Time of the last sweep of the waiting sequences."""
        self._pending_logprobs: dict[Sequence, list[TokenLogprob]] = {}
        self._computing: dict[Sequence, int] = {}
        """Number of tokens of each sequence in the step under way."""

    @property
    def busy(self) -> bool:
        """Whether a step would do work."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def submit(self, request: Request, received_s: float | None = None) -> None:
        """Queue all choices of a request. The caller has checked that each fits the context.

        received_s: arrival time by the engine's clock; None for now.
        """
        now = self._clock()
        self.stats.requests += 1
        for index in range(request.choices):
            self.stats.stages_s["request_process"].observe(now - (now if received_s is None else received_s))
            self.scheduler.add(Sequence(request, index, self._text_stream(), self._vocabulary, now))

    def abort(self, rid: str, *, prefix: bool = False) -> list[Delta]:
        """End a running or waiting request; with `prefix`, every request whose id starts with `rid` ("" ends all).

        Their pages are free when this returns or, if it is called between the blocks of a step, after that step. Each
        sequence gets a last delta with the exact count, because a token that such a step still picks is dropped.
        """

        def matches(sequence: Sequence) -> bool:
            named = sequence.request.rid == rid or (prefix and sequence.request.rid.startswith(rid))
            return named and sequence.finish is None

        return self._end(matches)

    def _end(self, matches: Callable[[Sequence], bool], error: SlipstreamError | None = None) -> list[Delta]:
        ended = self.scheduler.waiting.remove(matches)
        for sequence in [sequence for sequence in self.scheduler.running if matches(sequence)]:
            # during a step, the kernels still write to its pages, so `step` removes the sequence
            if not self._computing:
                self.scheduler.remove(sequence)
            ended.append(sequence)
        self.stats.aborted_requests += len({sequence.request.rid for sequence in ended})
        return [self._delta(sequence, sequence.abort(error)) for sequence in ended]

    def step(self, poll_commands: Callable[[], None] | None = None) -> list[Delta]:
        """Compute one step and return its deltas, which may be empty.

        poll_commands: called between the blocks of a long step; it may submit and abort.
        """
        started = self._clock()
        self._drafter.propose(self.scheduler.running)
        swept: list[Delta] = []
        if self.scheduler.waiting and started - self._swept_s >= SWEEP_EVERY_S:
            self._swept_s = started
            swept = self._sweep_waiting(started)
        plan = self.scheduler.schedule()
        if not plan.works:
            self.stats.idle()
            return swept
        self._computing = {work.sequence: work.tokens - work.drafts for work in plan.works}
        picks, states, cut = self._run(plan, poll_commands)
        self._computing = {}
        starts = [work.sequence.computed for work in plan.works]
        for work in plan.works:
            self.scheduler.computed(work.up_to(cut[work.sequence]) if work.sequence in cut else work)
        ended = [sequence for sequence in self.scheduler.running if sequence.finish is not None]
        for sequence in ended:
            if sequence.is_broken:
                self._clear_pages(sequence)
            self.scheduler.remove(sequence)
        now = self._clock()
        before = self.stats.generation_tokens
        for work in plan.works:
            if work.sequence.is_broken and work.sequence.pending and work.sequence.running:
                picks.append((work.sequence, [Picked(NO_TOKEN, None)]))
            if work.sequence.is_new and work.sequence.running:
                self._observe_prompt(work.sequence, now)
        deltas = [delta for sequence, own in picks if (delta := self._accept(sequence, own, now)) is not None]
        deltas += swept
        self._drafter.learn(plan, starts, states)
        self.stats.count_step(now, now - started)
        if not ended:
            generating = sum(work.tokens - work.drafts == 1 for work in plan.works)
            computed = sum(work.tokens for work in plan.works)
            self.scheduler.costs.observe(generating, computed - generating, now - started)
            self._drafter.observe(plan, self.stats.generation_tokens - before, now - started)
        self.events.flush()
        return deltas

    def _run(self, plan: StepPlan, poll_commands: Callable[[], None] | None) -> Ran:
        branching = [work for work in plan.works if work.drafts and work.sequence.draft_tree is not None]
        if not branching:
            return self._runner.run(plan, poll_commands)
        plain = [work for work in plan.works if not work.drafts or work.sequence.draft_tree is None]
        for source, target in plan.copies:
            self.store.copy(source, target)
        picks, states, _ = self._runner.run(StepPlan(plain)) if plain else Ran([], {}, {})
        checked = self._trees.run(branching)
        return Ran(picks + checked.picks, {**states, **checked.states}, {})

    def flush_cache(self) -> bool:
        """Clear the cache. Returns False without effect while any request runs or waits."""
        if self.busy:
            return False
        self.cache.clear()
        self.events.cleared()
        self.events.flush()
        return True

    def close(self) -> None:
        """Close the publication of events. The engine must not be used again."""
        self.events.close()

    def _accept(self, sequence: Sequence, picks: list[Picked], now: float) -> Delta | None:
        """Append a token and the accepted drafts; None if there is nothing to report (half a character or stop
        string)."""
        kept = accepted_prefix(sequence.drafts, [picked.id for picked in picks])
        if sequence.checked_drafts:
            self.stats.count_drafts(sequence.checked_drafts, kept)
            sequence.count_drafts(kept)
        # keys and values of accepted drafts are already stored
        sequence.computed += kept
        text = ""
        before = len(sequence.tokens)
        for picked in picks[: kept + 1]:
            text += sequence.append(picked.id)
            if picked.logprob is not None and not sequence.is_broken:
                pending = self._pending_logprobs.setdefault(sequence, [])
                pending += sequence.take_prompt_scores()
                if sequence.completion_tokens > sequence.opening_tokens and not sequence.ended_by_id:
                    pending.append(picked.logprob)
            if sequence.finish is not None:
                break
        emitted = len(sequence.tokens) - before
        sequence.settle(emitted)
        self._observe(sequence, emitted, now)
        if sequence.finish is not None:
            if sequence.is_broken:
                self.stats.broken_sequences += 1
                logger.error(
                    "request %s failed: the model computed NaN or infinity after %d tokens; check its weights",
                    sequence.request.rid, len(sequence.tokens),
                )  # fmt: skip
                self._clear_pages(sequence)
            self.scheduler.remove(sequence)
            self.stats.request_s.observe(now - sequence.arrived_s)
        elif not text:
            return None
        sequence.emitted_s = now
        return self._delta(sequence, text)

    def _clear_pages(self, sequence: Sequence) -> None:
        """Clear the pages of a broken sequence, because their next owners may overwrite only parts of them."""
        self._runner.clear([page for page in sequence.pages if self.pages.is_only(page)])

    def _sweep_waiting(self, now: float) -> list[Delta]:
        """Refuse requests that waited too long to start, and emit an empty delta for each silent preempted sequence."""
        late = {
            sequence.request.rid: sequence.request
            for sequence in self.scheduler.waiting
            # the first sequence of a request waits before its others
            if sequence.index == 0 and sequence.is_new and _is_late(sequence, now)
        }
        deltas: list[Delta] = []
        if late:
            waited_s = max(request.start_within_s or 0.0 for request in late.values())
            deltas = self._end(
                lambda sequence: sequence.request.rid in late and sequence.finish is None,
                Overloaded(
                    f"No slot or memory came free on this engine within {waited_s:g} s; try again.", retry_after_s=1.0
                ),
            )
        for sequence in self.scheduler.waiting:
            if sequence.last_token_s is not None and now - sequence.emitted_s > HEARTBEAT_S:
                sequence.emitted_s = now
                deltas.append(self._delta(sequence, ""))
        return deltas

    def _delta(self, sequence: Sequence, text: str) -> Delta:
        return Delta(
            sequence.request.rid,
            sequence.index,
            text,
            # all tokens of a step under way count, because the step still computes them
            min(sequence.read_tokens + self._computing.get(sequence, 0), sequence.prompt_tokens),
            sequence.completion_tokens,
            sequence.cached_tokens,
            tuple(self._pending_logprobs.pop(sequence, ())),
            sequence.finish,
            sequence.speculated if sequence.finish is not None else None,
            sequence.timing if sequence.finish is not None else None,
            None if self._pooling is None else self._vector(sequence, self._pooling),
        )

    def _vector(self, sequence: Sequence, pooling: Pooling) -> bytes | None:
        if sequence.finish is None or sequence.finish.reason != "length":
            return None
        return vector_of(pooling, sequence)

    def _observe_prompt(self, sequence: Sequence, now: float) -> None:
        """Record the time of a chunk of a prompt."""
        if sequence.pending:
            self.stats.stages_s["chunked_prefill"].observe(now - sequence.piece_began_s)
            sequence.piece_began_s = now
        elif sequence.admitted_s is not None:
            self.stats.stages_s["prefill_forward"].observe(now - sequence.admitted_s)
            sequence.prompt_ended_s = sequence.prompt_ended_s or now

    def _observe(self, sequence: Sequence, emitted: int, now: float) -> None:
        stats = self.stats
        stats.generation_tokens += emitted
        if sequence.last_token_s is None:
            stats.first_token_s.observe(now - sequence.arrived_s)
            stats.queue_s.observe((sequence.admitted_s or now) - sequence.arrived_s)
            if not sequence.forked:
                stats.prompt_tokens += sequence.prompt_tokens
                stats.cached_tokens += sequence.cached_tokens
        else:
            for _ in range(emitted):
                stats.inter_token_s.observe((now - sequence.last_token_s) / emitted)
        sequence.last_token_s = now


def _is_late(sequence: Sequence, now: float) -> bool:
    within_s = sequence.request.start_within_s
    return within_s is not None and now - sequence.arrived_s > within_s
