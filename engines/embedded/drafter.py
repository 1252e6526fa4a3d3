"""Gives the sequences of a step their drafts, as far as the governor finds that drafts pay."""

from __future__ import annotations

from collections.abc import Sequence as Rows

from engines.embedded.scheduler import StepPlan
from engines.embedded.sequence import Sequence
from speculative.config import SpeculationConfig
from speculative.governor import Governor
from speculative.ngram import NgramDrafts


class Drafter:
    """Asked before every step, told after it."""

    def __init__(self, config: SpeculationConfig) -> None:
        self.governor = Governor(config)
        self._config = config

    def propose(self, running: Rows[Sequence]) -> None:
        """Set `drafts` of the sequences that generate."""
        if self._config.method == "off" or not running:
            return
        generating = [sequence for sequence in running if sequence.pending == 1 and not sequence.is_new]
        count = self.governor.drafts(len(generating)) if generating else 0
        for sequence in generating:
            # the token after the last draft must still be allowed
            room = min(count, sequence.most_tokens - len(sequence.tokens) - 1)
            if room > 0 and sequence.request.speculate:
                if sequence.lookup is None:
                    sequence.lookup = NgramDrafts(self._config.ngram_least, self._config.ngram_most)
                sequence.drafts = sequence.lookup.propose(sequence.tokens, room)
                if sequence.guide is not None and sequence.drafts:
                    del sequence.drafts[sequence.guide.count_valid(sequence.drafts) :]
            else:
                sequence.drafts = []

    def observe(self, plan: StepPlan, emitted: int, step_s: float) -> None:
        """A step was done. Only steps in which everybody generates say what drafts cost."""
        if self._config.method == "off" or not emitted:
            return
        if all(work.tokens == 1 + work.drafts for work in plan.works):
            drafted = sum(work.drafts for work in plan.works)
            self.governor.observe(len(plan.works), drafted, emitted, step_s)
