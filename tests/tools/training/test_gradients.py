"""Gradients that are written out are those that torch derives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tools.training import cross_entropy
from tools.training.cross_entropy import cross_entropy_sum
from tools.training.model import Llama, Shape
from tools.training.pointwise import gated, scaled_to_one

SHAPE = Shape(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=128,
)


def random(*size: int, seed: int = 1) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def check(found: Tensor, expected: Tensor, inputs: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(found, expected)
    slopes = random(*found.shape, seed=9).detach()
    ours = torch.autograd.grad(found, inputs, slopes)
    torch.testing.assert_close(ours, torch.autograd.grad(expected, inputs, slopes))
    assert all(float(one.abs().max()) > 0.01 for one in ours)


def test_of_the_norm() -> None:
    x, weight = random(3, 5, 16), random(16, seed=2)
    check(scaled_to_one(x, weight, 1e-5), functional.rms_norm(x, (16,), weight, 1e-5), (x, weight))


def test_of_the_gate() -> None:
    x = random(3, 5, 32)
    gate, up = x.chunk(2, -1)
    check(gated(x), functional.silu(gate) * up, (x,))


@pytest.mark.parametrize("rows", [3, 7, 100])
def test_of_the_loss(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(cross_entropy, "ROWS_CPU", rows)
    hidden, table = random(20, 8), random(50, 8, seed=2)
    targets = torch.arange(20) * 2
    expected = functional.cross_entropy(hidden @ table.t(), targets, reduction="sum")
    check(cross_entropy_sum(hidden, table, targets), expected, (hidden, table))


def test_a_token_that_seemed_impossible_has_a_finite_loss() -> None:
    hidden, table = torch.tensor([[100.0]]), torch.tensor([[100.0], [-100.0]])
    assert 80 < float(cross_entropy_sum(hidden, table, torch.tensor([1]))) < 100


def test_compiled_layers_are_the_same_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[object, bool]] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, dynamic: compiled.append((module, dynamic)))
    model = Llama(SHAPE)
    before = list(model.state_dict())
    model.compile_layers()
    layers = model.model["layers"]
    assert isinstance(layers, torch.nn.ModuleList)
    assert compiled == [(layer, False) for layer in layers]
    assert list(model.state_dict()) == before
