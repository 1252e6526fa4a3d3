"""Records decode steps and replays them, because on a GPU the launch of a step's kernels costs more than their run.

A recording has a fixed size, so a step is padded to the next bucket of sequences and of pages. Padding rows belong to
no sequence; they read and write a spare page. The recorder is a parameter, so that all but CUDA itself is testable
without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engines.embedded.batch import tokens_of
from engines.embedded.kv.mirror import Span
from engines.embedded.kv.store import KVStore
from engines.embedded.models.llama import Llama
from engines.layers.attention import AttentionPlan, TokenGroup

MIN_PAGES = 8
"""Smallest bucket of pages per sequence; each larger bucket is twice the one before."""


class Decoded(NamedTuple):
    """The result of a step, valid until the next step."""

    logits: Tensor
    """(sequences, vocabulary) float32; the caller may overwrite it."""
    outputs: list[Tensor]
    """Outputs of the requested layers, (sequences, hidden) each."""


class Capture(Protocol):
    """Records a function that reads and writes fixed tensors."""

    def record(self, function: Callable[[], Decoded]) -> Callable[[], Decoded]:
        """Return a function that repeats the work of `function`, which may be called several times meanwhile."""
        ...


class CudaCapture:
    """CUDA graphs that share one memory pool, so a graph's results are void once another is replayed."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, function: Callable[[], Decoded]) -> Callable[[], Decoded]:
        # libraries allocate on their first calls, which a graph must not contain
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                function()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            decoded = function()

        def replay() -> Decoded:
            graph.replay()
            return decoded

        return replay


def sequence_bucket(sequences: int) -> int:
    """The bucket of a number of sequences: 1, 2, 4, then multiples of 8 up to 64, of 16 up to 256, and of 32 above."""
    if sequences <= 4:
        return 1 << (sequences - 1).bit_length()
    step = 8 if sequences <= 64 else 16 if sequences <= 256 else 32
    return -(-sequences // step) * step


def page_bucket(pages: int) -> int:
    """The bucket of a number of pages: powers of two from `MIN_PAGES`."""
    return max(MIN_PAGES, 1 << (pages - 1).bit_length())


class _Recorded(NamedTuple):
    inputs: Tensor
    """Ids, positions, slots, lengths, then every sequence's pages, on the device."""
    staged: Tensor
    """The inputs in host memory."""
    replay: Callable[[], Decoded]


class DecodeGraphs:
    """One recording for every bucket, made when a step first needs it."""

    def __init__(self, model: Llama, store: KVStore, capture: Capture, layers: tuple[int, ...] = ()) -> None:
        """store: has a spare page. layers: the layers whose outputs are requested."""
        self._model = model
        self._store = store
        self._capture = capture
        self._layers = layers
        self._recorded: dict[tuple[int, int], _Recorded] = {}
        """Recordings by number of sequences and number of pages of each."""

    @torch.inference_mode()
    def decode(self, spans: Sequence[Span]) -> Decoded:
        """Compute one token of each sequence; row i of the result belongs to spans[i]."""
        count = len(spans)
        sequences, pages = sequence_bucket(count), page_bucket(max(len(span.sequence.pages) for span in spans))
        recorded = self._recorded.get((sequences, pages))
        if recorded is None:
            recorded = self._recorded[sequences, pages] = self._record(sequences, pages)
        recorded.staged.copy_(torch.tensor(self._inputs(spans, sequences, pages)))
        recorded.inputs.copy_(recorded.staged, non_blocking=True)
        decoded = recorded.replay()
        return Decoded(decoded.logits[:count], [output[:count] for output in decoded.outputs])

    def _inputs(self, spans: Sequence[Span], sequences: int, pages: int) -> list[int]:
        page_tokens, spare = self._store.page_tokens, self._store.spare_page
        padding = sequences - len(spans)
        ids, positions, slots = tokens_of(spans, page_tokens)
        ids += [0] * padding
        positions += [0] * padding
        slots += [spare * page_tokens] * padding
        lengths = [span.start + 1 for span in spans] + [1] * padding
        tables: list[int] = []
        for span in spans:
            own = span.sequence.pages
            tables += own
            tables += [spare] * (pages - len(own))
        tables += [spare] * (padding * pages)
        return [*ids, *positions, *slots, *lengths, *tables]

    def _record(self, sequences: int, pages: int) -> _Recorded:
        model, store = self._model, self._store
        staged = torch.empty(sequences * (4 + pages), dtype=torch.int64, pin_memory=model.device.type == "cuda")
        staged.copy_(torch.tensor(self._inputs((), sequences, pages)))
        inputs = staged.to(model.device)
        ids, positions, slots, lengths = inputs[: 4 * sequences].view(4, sequences).unbind()
        tables = inputs[4 * sequences :]
        places = torch.arange(pages * store.page_tokens, device=model.device)

        def step() -> Decoded:
            hidden = (places >= lengths[:, None])[:, None, None]
            bias = torch.zeros(hidden.shape, dtype=model.dtype, device=model.device)
            bias.masked_fill_(hidden, float("-inf"))
            plan = AttentionPlan(slots, (TokenGroup(0, sequences, 1, tables, bias),))
            states, outputs = model.hidden_and_outputs(ids, positions, store.pages, plan, self._layers)
            return Decoded(model.logits(states), outputs)

        return _Recorded(inputs, staged, self._capture.record(step))
