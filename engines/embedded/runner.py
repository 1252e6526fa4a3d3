"""Runs one step: batch, model, sampler."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engines.embedded.batch import BatchBuilder
from engines.embedded.kv.store import KVStore
from engines.embedded.models.registry import Model
from engines.embedded.prompt_scores import score_prompts
from engines.embedded.sampler import Picked, pick
from engines.embedded.scheduler import StepPlan
from engines.embedded.sequence import Sequence


class Ran(NamedTuple):
    """What a step gave."""

    picks: list[tuple[Sequence, list[Picked]]]
    """The next token of every sequence that has caught up, and for one with drafts the token after each of them."""
    states: dict[Sequence, Tensor]
    """What the wanted layers gave out, (tokens, layers * hidden) by sequence; empty when none is wanted."""


class Runner:
    """Owns the model and its key and value memory."""

    def __init__(self, model: Model, store: KVStore, layers: tuple[int, ...] = ()) -> None:
        """layers: whose outputs are wanted."""
        self._layers = layers
        self._model = model
        self._store = store
        self._builder = BatchBuilder(store.page_tokens, model.dtype)

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> Ran:
        """Do the plan. Sequences keep their tokens; what changes is the scores of their prompts."""
        for source, target in plan.copies:
            self._store.copy(source, target)
        batch = self._builder.build(plan.works)
        hidden, outputs = self._model.hidden_and_outputs(
            batch.ids, batch.positions, self._store.pages, batch.plan, self._layers
        )
        states: dict[Sequence, Tensor] = {}
        if outputs:
            parts = torch.split(torch.cat(outputs, -1), [work.tokens for work in batch.order])
            states = {work.sequence: part for work, part in zip(batch.order, parts, strict=True)}
        if batch.scored:
            score_prompts(self._model, hidden, batch.scored)
        if not batch.sampled:
            return Ran([], states)
        logits = self._model.logits(hidden.index_select(0, batch.sampled_rows))
        picks: list[tuple[Sequence, list[Picked]]] = []
        for sequence, picked in zip(batch.sampled, pick(logits, batch.sampled), strict=True):
            if picks and picks[-1][0] is sequence:
                picks[-1][1].append(picked)
            else:
                picks.append((sequence, [picked]))
        return Ran(picks, states)
