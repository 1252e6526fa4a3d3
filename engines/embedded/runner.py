"""Runs one step: batch, model, sampler."""

from __future__ import annotations

import torch

from engines.embedded.batch import BatchBuilder
from engines.embedded.kv.store import KVStore
from engines.embedded.models.registry import Model
from engines.embedded.prompt_scores import score_prompts
from engines.embedded.sampler import Picked, pick
from engines.embedded.scheduler import StepPlan
from engines.embedded.sequence import Sequence


class Runner:
    """Owns the model and its key and value memory."""

    def __init__(self, model: Model, store: KVStore) -> None:
        self._model = model
        self._store = store
        self._builder = BatchBuilder(store.page_tokens, model.dtype)

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> list[tuple[Sequence, list[Picked]]]:
        """Do the plan and return the next token of every sequence that has caught up, and for one with drafts the
        token after each of them. Sequences keep their tokens; what changes is the
        scores of their prompts."""
        for source, target in plan.copies:
            self._store.copy(source, target)
        batch = self._builder.build(plan.works)
        hidden = self._model.hidden(batch.ids, batch.positions, self._store.pages, batch.plan)
        if batch.scored:
            score_prompts(self._model, hidden, batch.scored)
        if not batch.sampled:
            return []
        logits = self._model.logits(hidden.index_select(0, batch.sampled_rows))
        picks: list[tuple[Sequence, list[Picked]]] = []
        for sequence, picked in zip(batch.sampled, pick(logits, batch.sampled), strict=True):
            if picks and picks[-1][0] is sequence:
                picks[-1][1].append(picked)
            else:
                picks.append((sequence, [picked]))
        return picks
