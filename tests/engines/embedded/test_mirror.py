"""The mirrored contexts are always what the pages hold, whoever comes and goes."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from engines.embedded.config import KVConfig
from engines.embedded.kv.mirror import ContextMirror, Span
from engines.embedded.kv.store import KVStore
from engines.embedded.models.config import ModelConfig
from engines.embedded.sequence import Sequence
from engines.layers.linear import Linear, wide_is_fast
from engines.tokenizer.text_stream import BytesTextStream
from tests.engines.embedded.tiny import SHIPPED, request

PAGE = 4


def store_of(pages: int) -> KVStore:
    model = ModelConfig.read(SHIPPED / "slipstream-chat")
    budget = pages * PAGE * model.kv_elements_per_token * 2
    store = KVStore(model, KVConfig(budget_bytes=budget, page_tokens=PAGE), torch.bfloat16, 16)
    torch.manual_seed(3)  # of the steps' keys and values, too
    store.pages.normal_()
    return store


def mirrored(mirror: ContextMirror, place: int, stop: int) -> Tensor:
    """(layers, 2, kv_heads, stop, head_dim)"""
    return torch.stack([layer[:, place, :, :stop] for layer in mirror.layers])


def paged(store: KVStore, sequence: Sequence, stop: int) -> Tensor:
    found = store.pages[:, torch.tensor(sequence.pages)].flatten(1, 2)[:, :stop]
    return found.permute(0, 2, 3, 1, 4).float()


def write(store: KVStore, mirror: ContextMirror, place: int, span: Span) -> None:
    """What attention does with the keys and values of a step, layer by layer."""
    for at in range(span.start, span.stop):
        page, offset = span.sequence.pages[at // PAGE], at % PAGE
        own = torch.randn(store.pages.shape[0], 2, *store.pages.shape[4:]).bfloat16()
        store.pages[:, page, offset] = own
        places = place * mirror.stride + at + mirror.offsets
        for layer, rows in zip(mirror.layers, own, strict=True):
            layer.view(-1, layer.shape[-1])[places] = rows.flatten(0, 1).float()


def test_contexts_are_those_of_the_pages() -> None:
    source = random.Random(3)
    store = store_of(4000)
    free = iter(range(4000))
    mirror = ContextMirror(store, torch.float32, 1 << 30)
    running: list[Sequence] = []
    kept = 0
    for step in range(120):
        if source.random() < 0.3 or not running:
            for _ in range(source.randrange(1, 4)):
                sequence = Sequence(request(f"r{step}", [1]), 0, BytesTextStream({}), 8, 0.0)
                sequence.computed = source.randrange(1, 60)
                sequence.pages = [next(free) for _ in range(30)]
                running.append(sequence)
        for sequence in source.sample(running, source.randrange(len(running)) // 3):
            running.remove(sequence)
        source.shuffle(running)
        # some are left out of a step now and then, some have drafts
        chosen = [sequence for sequence in running if source.random() < 0.95 and sequence.computed < 100]
        spans = [Span(s, s.computed, s.computed + source.choice((1, 1, 4))) for s in chosen]
        placed = mirror.arrange(spans)
        assert (placed is None) == (not spans)
        for place, span in enumerate(placed or ()):
            assert torch.equal(mirrored(mirror, place, span.start), paged(store, span.sequence, span.start))
            write(store, mirror, place, span)
            span.sequence.computed += source.randint(1, span.stop - span.start)
            kept += 1
    assert kept > 500


def test_very_different_contexts_and_too_little_memory_are_left_to_the_pages() -> None:
    store = store_of(3000)
    sequences = [Sequence(request(f"r{at}", [1]), 0, BytesTextStream({}), 8, 0.0) for at in range(20)]
    for sequence in sequences:
        sequence.pages = list(range(2000))
    short = [Span(sequence, 20, 21) for sequence in sequences]
    assert ContextMirror(store, torch.float32, 1 << 30).arrange([*short[1:], Span(sequences[0], 7000, 7001)]) is None
    assert ContextMirror(store, torch.float32, 1 << 30).arrange(short) is not None
    assert ContextMirror(store, torch.float32, 1000).arrange(short) is None


@pytest.mark.skipif(not wide_is_fast(torch.device("cpu")), reason="this processor has no such kernel")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_alone_and_among_others(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    weight, bias = torch.randn(704, 256).bfloat16(), torch.randn(704).bfloat16()
    layer = Linear(weight, bias, wide=True)
    x = torch.randn(70, 256).to(dtype)
    whole = layer(x)
    for rows in range(1, 65):
        assert torch.equal(layer(x[:rows]), whole[:rows]), rows
    expected = x.float() @ weight.float().T + bias.float()
    tolerance = 1e-3 if dtype is torch.float32 else 0.3
    torch.testing.assert_close(whole.float(), expected, atol=tolerance, rtol=1e-2)
