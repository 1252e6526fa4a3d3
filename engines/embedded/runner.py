"""Runs one step through batches, model and sampler."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from engines.embedded.batch import Batch, BatchBuilder
from engines.embedded.graphs import DecodeGraphs
from engines.embedded.kv.mirror import ContextMirror, Span
from engines.embedded.kv.store import KVStore
from engines.embedded.models.llama import Llama
from engines.embedded.pooling import Pooling, pool
from engines.embedded.prompt_scores import score_prompts
from engines.embedded.rows import Rows, lay_rows
from engines.embedded.sampler import Picked, pick
from engines.embedded.scheduler import StepPlan, Work
from engines.embedded.sequence import Sequence
from engines.embedded.wanted_rows import WantedRows

if TYPE_CHECKING:
    from engines.layers.native.decoder import NativeDecoder

LANES = 16
"""The native kernels need pages of a multiple of this many tokens."""


class Ran(NamedTuple):
    """The result of one step."""

    picks: list[tuple[Sequence, list[Picked]]]
    """The next token of every sequence that has caught up, and the token after each of its drafts."""
    states: dict[Sequence, Tensor]
    """The outputs of the requested layers, (tokens, layers * hidden), by sequence; empty if none are requested."""
    cut: dict[Sequence, int]
    """The number of computed tokens of sequences that ended meanwhile, before all of their tokens were computed."""


class Runner:
    """Owns the model and its key and value memory."""

    def __init__(
        self,
        model: Llama,
        store: KVStore,
        layers: tuple[int, ...] = (),
        graphs: DecodeGraphs | None = None,
        pooling: Pooling | None = None,
    ) -> None:
        """layers: the layers whose outputs are requested. graphs: replay plain decode steps; None for no replay.
        pooling: computes vectors from final states; None if tokens are generated."""
        self._layers = layers
        self._pooling = pooling
        self._model = model
        self._store = store
        self._graphs = graphs
        # the native kernels read no codes
        self._native = model.native if store.page_tokens % LANES == 0 and not store.is_narrow else None
        self._mirror: ContextMirror | None = None
        attention = model.dtype
        if model.device.type == "cpu" and graphs is None:
            # bf16 sums would depend on the rest of the batch
            attention = torch.float32
            if self._native is None:
                self._mirror = ContextMirror(store, attention, store.total_pages * store.page_bytes)
        self._builder = BatchBuilder(store.page_tokens, attention, self._mirror, model.device)

    @torch.inference_mode()
    def run(self, plan: StepPlan, poll_commands: Callable[[], None] | None = None) -> Ran:
        """Run the plan. Sequences keep their tokens; only the scores of their prompts change.

        poll_commands: called every few milliseconds while the native kernels compute. It may end sequences by setting
        `finish`. These get no token, and rows that only they need are no longer computed.
        """
        for source, target in plan.copies:
            self._store.copy(source, target)
        states: dict[Sequence, Tensor] = {}
        if self._graphs is not None and all(_is_plain_step(work) for work in plan.works):
            return Ran(_by_sequence(*self._replay(plan, self._graphs, states)), states, {})
        if self._native is None:
            return self._run_batches(plan.works, states)
        # the native kernels support no adapters and store a page's numbers in another order, so a sequence is always
        # computed by the same implementation and shares no pages with sequences of other adapters
        adapted = [work for work in plan.works if work.sequence.request.adapter is not None]
        with_adapters = self._run_batches(adapted, states) if adapted else Ran([], states, {})
        plain = [work for work in plan.works if work.sequence.request.adapter is None]
        if not plain:
            return with_adapters
        ran = self._run_rows(lay_rows(plain, self._store.page_tokens), self._native, states, poll_commands)
        # commands that arrived meanwhile may have ended sequences with adapters
        return ran._replace(picks=[pick for pick in with_adapters.picks if pick[0].finish is None] + ran.picks)

    def clear(self, pages: list[int]) -> None:
        """Clear these pages and every copy of them."""
        self._store.clear(pages)
        if self._mirror is not None:
            self._mirror.clear()

    def _run_batches(self, works: list[Work], states: dict[Sequence, Tensor]) -> Ran:
        """Compute with PyTorch's operations, and add to `states`."""
        layout = self._builder.build(works)
        rows: list[Tensor] = []
        sampled: tuple[Sequence, ...] = ()
        prompts: Tensor | None = None
        if layout.prompts is not None:
            hidden = self._compute(layout.prompts, self._model.dtype, states)
            if self._pooling is not None:
                pool(self._pooling, hidden, layout.prompts.order)
                return Ran(_pooled(layout.prompts.sampled), states, {})
            if layout.prompts.scored:
                score_prompts(self._model, hidden, layout.prompts.scored)
            sampled += self._keep(layout.prompts, hidden, rows)
            prompts = hidden
        if layout.generated is not None:
            hidden = self._compute(layout.generated, self._model.generation_dtype, states)
            sampled += self._keep(layout.generated, hidden, rows)
        picks: list[tuple[Sequence, list[Picked]]] = []
        if sampled:
            final = rows[0] if len(rows) == 1 else torch.cat([row.to(rows[-1].dtype) for row in rows])
            picks = _by_sequence(self._model.logits(final), sampled)
        if layout.prompts is not None and prompts is not None:
            _mark_broken(layout.prompts.order, prompts)  # a GPU has finished its work here
        return Ran(picks, states, {})

    def _run_rows(
        self,
        rows: Rows,
        native: NativeDecoder,
        states: dict[Sequence, Tensor],
        poll_commands: Callable[[], None] | None,
    ) -> Ran:
        # commands create tensors that change after this step, which inference-mode tensors do not allow
        wanted = (
            None if poll_commands is None else WantedRows(rows.order, torch.inference_mode(mode=False)(poll_commands))
        )
        goes_on = None if wanted is None else wanted.goes_on
        hidden, outputs = native(rows.batch, self._store.pages, self._layers, goes_on)
        self._mark_broken_of_ended(rows.order)
        rows = _of_those_who_stay(rows)
        if self._pooling is not None:
            pool(self._pooling, hidden, rows.order)
            return Ran(_pooled(rows.sampled), states, {} if wanted is None else wanted.cut)
        if rows.scored:
            score_prompts(self._model, hidden, rows.scored)
        _note_states(outputs, rows.order, states)
        kept: list[Tensor] = []
        sampled = self._keep(rows, hidden, kept)
        picks = _by_sequence(self._model.logits(kept[0]), sampled) if kept else []
        if hidden.shape[0] > len(rows.order):
            _mark_broken(rows.order, hidden)
        return Ran(picks, states, {} if wanted is None else wanted.cut)

    def _mark_broken_of_ended(self, order: Collection[Span]) -> None:
        """Mark sequences that have ended meanwhile and left numbers that are not finite in this step's pages. Their
        final states do not show it, because they may be uninitialised."""
        size = self._store.page_tokens
        for sequence, start, stop in order:
            if sequence.finish is not None:
                written = sequence.pages[start // size : -(-stop // size)]
                sequence.is_broken = sequence.is_broken or not self._store.are_finite(written)

    def _replay(
        self, plan: StepPlan, graphs: DecodeGraphs, states: dict[Sequence, Tensor]
    ) -> tuple[Tensor, tuple[Sequence, ...]]:
        spans = [Span(work.sequence, work.sequence.computed, work.sequence.computed + 1) for work in plan.works]
        decoded = graphs.decode(spans)
        _note_states(decoded.outputs, spans, states)
        # a sequence that is catching up has more to compute and nothing to sample from yet
        ready = [row for row, span in enumerate(spans) if span.stop == len(span.sequence.tokens)]
        logits = decoded.logits if len(ready) == len(spans) else decoded.logits[ready]
        return logits, tuple(spans[row].sequence for row in ready)

    def _compute(self, batch: Batch, dtype: torch.dtype, states: dict[Sequence, Tensor]) -> Tensor:
        """Return the final states of a batch, and add to `states`."""
        mirror = None if self._mirror is None or batch.plan.mirror is None else self._mirror.layers
        hidden, outputs = self._model.hidden_and_outputs(
            batch.ids,
            batch.positions,
            self._store.pages,
            batch.plan,
            self._layers,
            dtype=dtype,
            mirror=mirror,
            adapted=batch.adapted(),
        )
        _note_states(outputs, batch.order, states)
        return hidden

    def _keep(self, batch: Batch | Rows, hidden: Tensor, rows: list[Tensor]) -> tuple[Sequence, ...]:
        """Collect the rows to sample from."""
        if batch.sampled:
            whole = batch.sampled_rows == tuple(range(hidden.shape[0]))
            rows.append(hidden if whole else hidden[torch.tensor(batch.sampled_rows, device=hidden.device)])
        return batch.sampled


def _pooled(sampled: tuple[Sequence, ...]) -> list[tuple[Sequence, list[Picked]]]:
    """The picks of sequences whose vectors are finished, for which no token is sampled."""
    return [(sequence, [Picked(0, None)]) for sequence in sampled]


def _is_plain_step(work: Work) -> bool:
    """Whether the step generates one token without an adapter, like the steps recorded on a GPU."""
    return work.tokens == 1 and not work.sequence.is_new and work.sequence.request.adapter is None


def _of_those_who_stay(rows: Rows) -> Rows:
    """Drop sequences that have ended, because nothing is sampled or scored for them."""
    if all(span.sequence.finish is None for span in rows.order):
        return rows
    kept_rows = [at for at, sequence in enumerate(rows.sampled) if sequence.finish is None]
    return replace(
        rows,
        sampled=tuple(rows.sampled[at] for at in kept_rows),
        sampled_rows=tuple(rows.sampled_rows[at] for at in kept_rows),
        scored=tuple(scored for scored in rows.scored if scored.sequence.finish is None),
    )


def _note_states(outputs: list[Tensor], order: Collection[Span], states: dict[Sequence, Tensor]) -> None:
    """Add copies of the outputs of the requested layers, because the next step may overwrite `outputs`."""
    if not outputs:
        return
    parts = torch.split(torch.cat(outputs, -1), [stop - start for _, start, stop in order])
    for (sequence, _, _), part in zip(order, parts, strict=True):
        before = states.get(sequence)
        # a resumed sequence may have tokens in both batches
        states[sequence] = part if before is None else torch.cat((before.to(part.dtype), part))


def _mark_broken(order: Collection[Span], hidden: Tensor) -> None:
    """Mark sequences whose numbers are not finite, before the cache gets their keys and values."""
    if isfinite(hidden.sum(dtype=torch.float32).item()):
        return
    for (sequence, _, _), own in zip(
        order, torch.split(hidden, [span.stop - span.start for span in order]), strict=True
    ):
        # rows of an ended sequence may be uninitialised
        if sequence.finish is None and not own.isfinite().all():
            sequence.is_broken = True


def _by_sequence(logits: Tensor, sampled: tuple[Sequence, ...]) -> list[tuple[Sequence, list[Picked]]]:
    """Pick a token for every row; the rows of a sequence are contiguous."""
    picks: list[tuple[Sequence, list[Picked]]] = []
    for sequence, picked in zip(sampled, pick(logits, sampled) if sampled else (), strict=True):
        if picks and picks[-1][0] is sequence:
            picks[-1][1].append(picked)
        else:
            picks.append((sequence, [picked]))
    return picks
