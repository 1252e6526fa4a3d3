"""Our own kernels give what PyTorch's operations give, and a row the same bits in any company."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engines.embedded.models.linears import Linears, PlainLinears
from engines.embedded.models.llama import Llama
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.linears import Int8Linears
from engines.layers.attention import AttentionPlan, TokenGroup
from engines.layers.linear import Linear
from engines.layers.native.matmul import Panels
from engines.layers.native.team import Team
from engines.layers.row_batch import RowBatch
from tests.engines.embedded.test_families import make
from tests.engines.embedded.tiny import SHIPPED
from tests.waiting import GUARD_S

pytest.importorskip("numba")
LENGTHS = (1, 5, 16, 17, 40, 95, 64)
PAGE = 16
MAX_APART = 0.02
"""What rounding to bfloat16 does; PyTorch's bfloat16 is as far off."""
OTHER = {"head_dim": 64, "hidden_size": 80, "intermediate_size": 100}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen 2": ("qwen2", OTHER),
    "qwen 3": ("qwen3", OTHER),
    "phi 4 mini": (
        "phi3",
        {**OTHER, "partial_rotary_factor": 0.75, "pad_token_id": 0, "sliding_window": 512, "tie_word_embeddings": True},
    ),
    "too many heads to be done together": ("llama", {"head_dim": 64, "num_attention_heads": 16}),
}
AT_NIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "narrow heads": ("qwen3", {"head_dim": 32, "hidden_size": 80, "intermediate_size": 100}),
    "heads too wide to be done together": ("llama", {"head_dim": 128, "num_attention_heads": 8}),
}
"""Each form of kernels costs 13 CPU seconds of compilation. In the gate all models have the form of a shipped one, and
8-bit weights slipstream-code's."""


def contexts(model: Llama) -> tuple[RowBatch, Tensor]:
    """A row at the end of each of `LENGTHS` contexts, whose pages lie in any order."""
    torch.manual_seed(3)
    config = model.config
    counts = [-(-length // PAGE) for length in LENGTHS]
    total = sum(counts)
    pages = torch.randperm(total)
    memory = torch.randn(config.num_hidden_layers, total, PAGE, 2, config.num_key_value_heads, config.head_dim)
    firsts = np.array([sum(counts[:at]) for at in range(len(counts))])
    positions = np.array(LENGTHS) - 1
    slots = pages.numpy()[firsts + positions // PAGE] * PAGE + positions % PAGE
    ids = np.arange(len(LENGTHS)) * 31 + 7
    return RowBatch(ids, positions, slots, pages.numpy(), firsts), memory.bfloat16()


def as_pytorch_has_it(memory: Tensor) -> Tensor:
    """Pages in our kernels' order, keys by pairs of dimensions and values by pairs of tokens, in the other order."""
    layers, pages, tokens, _, heads, head_dim = memory.shape
    keys, values = memory.reshape(layers, pages, 2, -1).unbind(2)
    keys = keys.view(layers, pages, heads, head_dim // 2, tokens, 2).permute(0, 1, 4, 2, 3, 5)
    values = values.view(layers, pages, heads, tokens // 2, head_dim, 2).permute(0, 1, 3, 5, 2, 4)
    shape = (layers, pages, tokens, heads, head_dim)
    return torch.stack((keys.reshape(shape), values.reshape(shape)), 3)


def by_torch(model: Llama, batch: RowBatch, memory: Tensor, layers: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
    """The same by gathering and masking."""
    bounds = [*batch.firsts.tolist(), len(batch.pages)]
    groups = []
    for row, length in enumerate(LENGTHS):
        pages = torch.from_numpy(batch.pages[bounds[row] : bounds[row + 1]])
        hidden = torch.arange(len(pages) * PAGE) >= length
        bias = torch.zeros(1, 1, 1, len(hidden)).masked_fill_(hidden, float("-inf"))
        groups.append(TokenGroup(row, row + 1, 1, pages, bias))
    plan = AttentionPlan(torch.from_numpy(batch.slots), tuple(groups))
    ids, positions = torch.from_numpy(batch.ids), torch.from_numpy(batch.positions)
    return model.hidden_and_outputs(ids, positions, memory, plan, layers, dtype=torch.float32)


def apart(mine: Tensor, other: Tensor) -> float:
    """Of the whole, as the root of mean squares."""
    return float((mine - other).norm() / other.norm())


class RoundedWeights:
    """Linear layers in float32, with weights that 8 bits hold."""

    wide = True

    def make(self, name: str, weight: Tensor, bias: Tensor | None) -> Linear:
        scales = weight.float().abs().amax(1, keepdim=True) / 127
        return Linear((weight.float() / scales).round() * scales, None if bias is None else bias.float())


def check(folder: Path, *, int8: bool = False) -> None:
    """Both ways over one folder. int8: with 8-bit weights."""

    plain_linears = RoundedWeights() if int8 else PlainLinears(torch.bfloat16, native=False)
    plain = load_model(folder, "bfloat16", lambda _: plain_linears)
    model = load_model(folder, "bfloat16", lambda dtype: Int8Linears(native=True) if int8 else PlainLinears(dtype))
    assert plain.native is None
    assert model.native is not None
    if int8 and model.config.tie_word_embeddings:
        plain.embedding = model.embedding
    batch, memory = contexts(model)
    theirs = as_pytorch_has_it(memory)
    layers = (0, model.config.num_hidden_layers - 1)
    hidden, outputs = model.native(batch, memory, layers)
    with torch.inference_mode():
        expected, expected_outputs = by_torch(plain, batch, theirs, layers)
    # what goes into a matrix is rounded to bfloat16 here, and is not there
    assert apart(hidden, expected) < MAX_APART
    assert max(apart(mine, other) for mine, other in zip(outputs, expected_outputs, strict=True)) < MAX_APART
    assert apart(model.logits(hidden), plain.logits(expected)) < MAX_APART
    assert apart(as_pytorch_has_it(memory).float(), theirs.float()) < MAX_APART  # written in the same places


@pytest.mark.parametrize("name", ["slipstream-chat", "slipstream-code"])
def test_shipped_models(name: str) -> None:
    check(SHIPPED / name)


@pytest.mark.parametrize(
    ("name", "int8"),
    [
        ("qwen 2", False),
        ("qwen 2", True),
        ("qwen 3", False),
        ("qwen 3", True),
        ("phi 4 mini", False),
        ("phi 4 mini", True),
        ("too many heads to be done together", False),
        pytest.param("too many heads to be done together", True, marks=pytest.mark.nightly),
        *(pytest.param(name, int8, marks=pytest.mark.nightly) for name in AT_NIGHT for int8 in (False, True)),
    ],
)
def test_other_shapes(tmp_path: Path, name: str, int8: bool) -> None:
    make(tmp_path, *{**SHAPES, **AT_NIGHT}[name], torch.bfloat16)
    check(tmp_path, int8=int8)


@pytest.mark.parametrize("native", [False, True])
def test_8_bits_of_a_tied_embedding_are_held_once(native: bool) -> None:
    folder = SHIPPED / "slipstream-code"
    exact = load_model(folder, "bfloat16", PlainLinears).embedding
    model = load_model(folder, "bfloat16", lambda _: Int8Linears(native=native))
    held = [value for value in vars(model).values() if isinstance(value, Tensor) and value.shape == exact.shape]
    assert model.config.tie_word_embeddings
    assert held == []
    assert apart(model.embedding.float(), exact.float()) < MAX_APART


@pytest.mark.parametrize("linears", [PlainLinears, lambda _: Int8Linears(native=True)])
def test_a_row_has_the_same_bits_alone_and_among_others(linears: Callable[[torch.dtype], Linears]) -> None:
    model = load_model(SHIPPED / "slipstream-code", "bfloat16", linears)
    assert model.native is not None
    batch, memory = contexts(model)
    together = model.native(batch, memory.clone())[0].clone()
    for row in range(len(LENGTHS)):
        only = slice(row, row + 1)
        one = RowBatch(batch.ids[only], batch.positions[only], batch.slots[only], batch.pages, batch.firsts[only])
        alone = model.native(one, memory.clone())[0]
        assert torch.equal(alone[0], together[row])
        assert torch.equal(model.logits(alone)[0], model.logits(together)[row])


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("threads", [2, 4])
def test_any_number_of_threads_gives_the_bits_of_one(int8: bool, threads: int) -> None:
    def load(threads: int) -> Llama:
        return load_model(
            SHIPPED / "slipstream-code",
            "bfloat16",
            lambda dtype: Int8Linears(native=True, threads=threads) if int8 else PlainLinears(dtype, threads=threads),
        )

    one, several = load(1), load(threads)
    assert one.native is not None
    assert several.native is not None
    batch, memory = contexts(one)
    layers = 0, one.config.num_hidden_layers - 1
    expected = one.native(batch, memory, layers)
    # again and again: who computes what is chance
    for _ in range(8):
        _, own = contexts(several)
        hidden, outputs = several.native(batch, own, layers)
        assert torch.equal(several.logits(hidden), one.logits(expected[0]))
        assert all(map(torch.equal, (hidden, *outputs, own), (expected[0], *expected[1], memory)))


def test_a_team_whose_other_threads_sleep_computes_alone() -> None:
    torch.manual_seed(4)
    weight = torch.randn(200, 64).bfloat16()
    team = Team(3)
    x = torch.randn(5, 64)
    expected = Panels(weight)(x)
    team.wake = lambda: None  # type: ignore[method-assign]
    assert torch.equal(Panels(weight, team)(x), expected)


def test_threads_of_a_team_end_with_it() -> None:
    before = set(threading.enumerate())
    panels = Panels(torch.ones(200, 64).bfloat16(), Team(3))
    panels(torch.ones(5, 64))
    [one, two] = set(threading.enumerate()) - before
    del panels
    gc.collect()
    one.join(GUARD_S)
    two.join(GUARD_S)
    assert not one.is_alive()
    assert not two.is_alive()


@pytest.mark.nightly
def test_a_processor_without_bfloat16_instructions_computes_the_same(tmp_path: Path) -> None:
    model = SHIPPED / "slipstream-chat"
    program = f"""
import pathlib
from engines.layers.native import vectors
vectors.NATIVE = vectors.NATIVE_BYTES = "an instruction that no processor has"
from tests.engines.embedded.test_native import check
for int8 in (False, True):
    check(pathlib.Path({str(model)!r}), int8=int8)
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(SHIPPED.parent)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_what_the_kernels_cannot_do_is_left_to_pytorch(tmp_path: Path) -> None:
    make(tmp_path, "llama", {"mlp_bias": True}, torch.bfloat16)
    assert load_model(tmp_path, "bfloat16").native is None
    assert load_model(SHIPPED / "slipstream-chat", "float32").native is None
