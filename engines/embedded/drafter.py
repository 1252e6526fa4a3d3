"""Drafts tokens for the sequences of a step while the governor finds that drafts pay."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Rows
from typing import Protocol

from torch import Tensor

from engines.embedded.scheduler import StepPlan
from engines.embedded.sequence import Lookup, Sequence
from speculative.config import SpeculationConfig
from speculative.governor import Governor

MIN_TEMPERATURE = 1e-3
"""Lowest temperature for sampling drafts; below it, they would be the likeliest tokens anyway."""


class DraftSource(Protocol):
    """A source of drafts; its state for a sequence is in `Sequence.lookup`."""

    layers: tuple[int, ...]
    """Target layers whose outputs the source needs."""

    def begin(self, sequence: Sequence) -> None:
        """Set `lookup` for a sequence that has none."""
        ...

    def learn(self, sequence: Sequence, start: int, states: Tensor) -> None:
        """Take the states of tokens start, start + 1, …; states: (n, len(layers) * hidden)."""
        ...


class Drafter:
    """Proposes drafts before every step and learns from its results."""

    def __init__(self, config: SpeculationConfig, source: DraftSource | None) -> None:
        """source: None to draft nothing."""
        self.governor = Governor(config)
        self._config = config
        self._source = source

    @property
    def layers(self) -> tuple[int, ...]:
        """Target layers whose outputs `learn` needs."""
        return () if self._source is None else self._source.layers

    def propose(self, running: Rows[Sequence]) -> None:
        """Set `drafts` of the generating sequences."""
        if self._source is None or not running:
            return
        generating = [sequence for sequence in running if sequence.pending == 1 and not sequence.is_new]
        count = self.governor.drafts(len(generating)) if generating else 0
        for sequence in generating:
            sequence.forget_drafts()
            # the limit must still allow the token after the last draft
            room = min(count, sequence.most_tokens - len(sequence.tokens) - 1)
            if room > 0 and sequence.request.speculate and sequence.opening is None:
                if sequence.lookup is None:
                    self._source.begin(sequence)
                assert sequence.lookup is not None
                self._guess(sequence, sequence.lookup, room)
                if sequence.guide is not None and sequence.drafts:
                    del sequence.drafts[sequence.guide.count_valid(sequence.drafts) :]

    def _guess(self, sequence: Sequence, lookup: Lookup, count: int) -> None:
        config = self._config
        ahead = min(count, config.steps)
        if sequence.draws_drafts:
            # even if drafts may branch, because sampled drafts are accepted more often than several likely ones
            draws = lookup.sample(sequence.tokens, ahead, max(sequence.sampling.temperature, MIN_TEMPERATURE))
            if draws is not None:
                sequence.drafts, sequence.draft_law = draws
                return
        if config.shape == "tree" and sequence.takes_trees:
            tree = lookup.tree(sequence.tokens, count, config.tree_depth, config.tree_width)
            if tree is not None:
                sequence.branch(tree)
                return
        sequence.drafts = lookup.propose(sequence.tokens, ahead)

    def learn(self, plan: StepPlan, starts: Rows[int], states: Mapping[Sequence, Tensor]) -> None:
        """Learn from a step. starts: the start of each work; states: the outputs of `layers`, by sequence and token.

        Rejected drafts are left out, because `computed` does not count them.
        """
        if self._source is None or not states:
            return
        for work, start in zip(plan.works, starts, strict=True):
            sequence = work.sequence
            if sequence.running and sequence.request.speculate:
                self._source.learn(sequence, start, states[sequence][: sequence.computed - start])
            if sequence.lookup is not None:
                for fork in work.forks:
                    fork.lookup = sequence.lookup.fork()

    def observe(self, plan: StepPlan, emitted: int, step_s: float) -> None:
        """Record the yield of a step. Only steps in which every sequence generates show the cost of drafts."""
        if self._source is None or not emitted:
            return
        if all(work.tokens == 1 + work.drafts for work in plan.works):
            drafted = sum(work.drafts for work in plan.works)
            self.governor.observe(len(plan.works), drafted, emitted, step_s)
