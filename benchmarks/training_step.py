"""One training step of a shipped model against the same step by torch's own kernels and derivatives.

    python -m benchmarks.training_step [--model models/slipstream-code] [--tokens 512] [--rounds 6] [--compiled]

Both compute the same loss from the same weights on the same tokens, forward and backward, without the optimizer, in
turns on one thread; CPU time is compared. The twin has torch's attention kernel, norms and gates that autograd derives,
and one cross entropy over all scores. Gradients must be as near to those in float32 as the twin's are.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from tools.training import export
from tools.training.cross_entropy import cross_entropy_sum
from tools.training.memory import keep_freed_memory
from tools.training.model import Llama

BATCH_TOKENS = 2048


def plain_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm that `scaled_to_one` replaces."""
    x32 = x.float()
    return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)) * weight


def plain_gate(gate_and_up: Tensor) -> Tensor:
    """The gate that `gated` replaces."""
    gate, up = gate_and_up.chunk(2, -1)
    return functional.silu(gate) * up


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The attention that `attend` replaces."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def plain_step(model: Llama, ids: Tensor, bf16: bool = True) -> float:
    """Run forward and backward with torch's own operations; returns the loss."""
    with (
        mock.patch("tools.training.model.scaled_to_one", plain_norm),
        mock.patch("tools.training.model.gated", plain_gate),
        mock.patch("tools.training.model.attend", plain_attention),
        torch.autocast("cpu", torch.bfloat16, enabled=bf16),
    ):
        scores = model.scores(model(ids[:, :-1]))
    loss = functional.cross_entropy(scores.float().flatten(0, 1), ids[:, 1:].flatten())
    torch.autograd.backward(loss)
    return loss.item()


def own_step(model: Llama, ids: Tensor) -> float:
    """Run forward and backward as the trainer does; returns the loss."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model(ids[:, :-1]).flatten(0, 1)
    loss = cross_entropy_sum(hidden, model.embedding, ids[:, 1:].flatten()) / len(hidden)
    torch.autograd.backward(loss)
    return loss.item()


def gradients(model: Llama) -> dict[str, Tensor]:
    """Take the model's gradients and clear them."""
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def error(found: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    """The mean over the weights of the gradient's distance from the exact one, relative to the exact one's size."""
    return sum(float((found[name] - exact[name]).norm() / exact[name].norm()) for name in exact) / len(exact)


def cpu_s(step: Callable[[], float]) -> float:
    """Run one step; returns its CPU seconds."""
    began = time.process_time()
    step()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, default=Path("models/slipstream-code"))
    parser.add_argument("--tokens", type=int, default=512, help="in a window")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--compiled", action="store_true", help="layers through torch.compile")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    own, twin = export.load(options.model), export.load(options.model)
    if options.compiled:
        own.compile_layers()
    rng = torch.Generator().manual_seed(1)
    # every second token repeats the one before, as a likelier token, so that gradients are as large as in training
    ids = torch.randint(0, own.shape.vocab_size, (BATCH_TOKENS // options.tokens, options.tokens + 1), generator=rng)
    ids[:, 1::2] = ids[:, :-1:2]
    plain_step(twin, ids, bf16=False)
    exact = gradients(twin)
    losses = own_step(own, ids), plain_step(twin, ids)
    errors = error(gradients(own), exact), error(gradients(twin), exact)
    rounds = []
    for _ in range(options.rounds):
        rounds.append((cpu_s(lambda: own_step(own, ids)), cpu_s(lambda: plain_step(twin, ids))))
        gradients(own), gradients(twin)
    ours, theirs = (sorted(column)[len(rounds) // 2] for column in zip(*rounds, strict=True))
    print(f"{options.model.name}, windows of {options.tokens}, {BATCH_TOKENS} tokens forward and backward, one thread")
    print(f"torch's own    {theirs * 1000:6.0f} ms CPU  {BATCH_TOKENS / theirs:6.0f} tokens/s  loss {losses[1]:.4f}")
    print(f"this trainer   {ours * 1000:6.0f} ms CPU  {BATCH_TOKENS / ours:6.0f} tokens/s  loss {losses[0]:.4f}")
    print(f"distance of the gradients from float32's: {errors[0]:.3f} against {errors[1]:.3f}")
    result = {
        "model": options.model.name,
        "tokens": options.tokens,
        "compiled": options.compiled,
        "own_ms": round(ours * 1000, 1),
        "torch_ms": round(theirs * 1000, 1),
        "times_faster": round(theirs / ours, 3),
        "losses": [round(loss, 5) for loss in losses],
        "gradient_errors": [round(value, 4) for value in errors],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
