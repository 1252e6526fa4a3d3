"""Decides what the next step computes.

There is one rule and no prefill or decode phase: every running sequence has tokens that are not computed yet, and a
step computes some of them (the idea is vLLM V1's). A sequence that generates has one; a new prompt has many and takes
what is left of the step's budget, so a long prompt is cut into chunks by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engines.embedded.config import SchedulerConfig
from engines.embedded.kv.pages import PagePool
from engines.embedded.sequence import Sequence
from engines.embedded.waiting import WaitingQueue


class Work(NamedTuple):
    """Compute the next `tokens` tokens of one sequence."""

    sequence: Sequence
    tokens: int


class Scheduler:
    """Owns the queue, the running list and the pages of both."""

    def __init__(self, config: SchedulerConfig, pages: PagePool, page_tokens: int, clock: Callable[[], float]) -> None:
        """clock: monotonic seconds."""
        self.waiting = WaitingQueue()
        self.running: list[Sequence] = []
        self.preemptions = 0
        self._config = config
        self._pages = pages
        self._page_tokens = page_tokens
        self._clock = clock
        self._committed_pages = 0

    @property
    def used_pages(self) -> int:
        """Pages that hold something."""
        return self._pages.total - self._pages.free

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence; the next `schedule` may start it."""
        self.waiting.push(sequence)

    def schedule(self) -> list[Work]:
        """The work of the next step: sequences that generate first, then chunks of prompts, then new sequences.

        Every work item has its pages. Empty only when nothing is running or waiting.
        """
        budget = self._config.max_batch_tokens
        works: dict[Sequence, int] = {}
        preemptions = self.preemptions
        generating = [sequence for sequence in self.running if sequence.pending == 1]
        catching_up = [sequence for sequence in self.running if sequence.pending > 1]
        for sequence in [*generating, *catching_up]:
            if budget and sequence.running:  # an earlier one may have preempted it
                budget -= self._give(sequence, budget, works)
        # pages freed by a preemption are for those that run: admitting now would only preempt again
        preempted = self.preemptions != preemptions
        while budget and not preempted and (admitted := self._admit()) is not None:
            budget -= self._give(admitted, budget, works)
        return [Work(sequence, tokens) for sequence, tokens in works.items()]

    def remove(self, sequence: Sequence) -> None:
        """Forget a running sequence and free its pages."""
        sequence.running = False
        self.running.remove(sequence)
        self._release(sequence)

    def _admit(self) -> Sequence | None:
        """Start the first waiting sequence if there is room for what it may become.

        The first one is never overtaken, so a large request cannot starve.
        """
        sequence = self.waiting.peek()
        if sequence is None or len(self.running) >= self._config.max_running:
            return None
        output = sequence.most_tokens - len(sequence.tokens)
        needed = self._pages_for(len(sequence.tokens) + max(1, int(output * self._config.output_reserve)))
        if self._committed_pages + needed > self._pages.total and self.running:
            return None
        if self._pages_for(min(len(sequence.tokens), self._config.max_batch_tokens)) > self._pages.free:
            return None
        self.waiting.pop()
        sequence.committed_pages = needed
        self._committed_pages += needed
        if sequence.admitted_s is None:
            sequence.admitted_s = self._clock()
        sequence.running = True
        self.running.append(sequence)
        return sequence

    def _give(self, sequence: Sequence, budget: int, works: dict[Sequence, int]) -> int:
        """Put as much of a sequence as fits into the step; returns the tokens given. May preempt younger ones."""
        tokens = min(sequence.pending, budget)
        missing = self._pages_for(sequence.computed + tokens) - len(sequence.pages)
        given_back = 0
        while missing > 0:
            taken = self._pages.take(missing)
            if taken is not None:
                sequence.pages += taken
                break
            youngest = max(self.running, key=lambda other: (-other.request.priority, other.order))
            given_back += works.pop(youngest, 0)
            self._preempt(youngest)
            if youngest is sequence:
                return -given_back
        works[sequence] = tokens
        return tokens - given_back

    def _preempt(self, sequence: Sequence) -> None:
        """Send a sequence back to the queue; its tokens are kept and computed again."""
        self.remove(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.push(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._pages.give_back(sequence.pages)
        sequence.pages = []
        self._committed_pages -= sequence.committed_pages
        sequence.committed_pages = 0

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self._page_tokens)
