"""The head's training loss, over the head unrolled on its own drafts as in serving (EAGLE-3's training-time test)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from speculative.eagle.head import EagleHead

DECAY = 0.8
"""Weight of a step relative to the one before it."""


class Unrolled(NamedTuple):
    """The loss and each step's accuracy."""

    loss: Tensor
    accuracy: list[float]
    """Share of positions whose likeliest draft is the target's token, by step; tokens that the head cannot draft count
    as wrong."""


def unroll(
    head: EagleHead,
    ids: Tensor,
    states: Tensor,
    scores: Tensor,
    embedding: Tensor,
    steps: int,
    counted: Tensor | None = None,
) -> Unrolled:
    """Compute the loss of one sequence.

    ids: (n,); states: (n, 3 * hidden), the target's features after each token; scores: (n, vocab), the target's logits
    after each token; embedding: the target's table; steps: drafts in a row, less than n - 1; counted: (n,) bool, the
    tokens whose drafts count, all if None. All tensors are on the head's device. Raises ValueError if the sequence is
    too short or no token counts.
    """
    count = len(ids) - 1 - steps
    if count < 1:
        raise ValueError(f"{len(ids)} tokens are too few to draft {steps} in a row")
    if counted is None:
        counted = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
    if not counted[2 : 2 + count].any():
        raise ValueError("no token counts")
    loss = torch.zeros((), device=ids.device)
    accuracy: list[float] = []
    for step, outputs in enumerate(outputs_by_step(head, ids, states, embedding, steps)):
        # scores after tokens 0 .. t+1+step, the last `step` of which earlier steps drafted
        target = scores[1 + step : 1 + step + count]
        matters = counted[2 + step : 2 + step + count]
        mask = head.t2d[target.argmax(-1)] & matters
        wanted = functional.softmax(target[:, head.t2d].float(), -1)
        scored = functional.log_softmax(head.logits(outputs), -1)
        loss = loss - DECAY**step * ((wanted * scored).sum(-1) * mask).sum() / matters.sum().clamp(min=1)
        correct = (head.target_ids(scored.argmax(-1)) == target.argmax(-1)) & matters
        accuracy.append(float(correct.sum() / matters.sum().clamp(min=1)))
    return Unrolled(loss, accuracy)


def outputs_by_step(head: EagleHead, ids: Tensor, states: Tensor, embedding: Tensor, steps: int) -> list[Tensor]:
    """The head's outputs when it drafts from every index in parallel, as `steps` tensors of (count, hidden).

    At step i, index t attends to the true keys of 0 .. t, and to the keys of its own earlier steps:

        step 0 of   0 1 2 . . t      causal, shared by all steps
        own steps             1 . i  one key each, of this index alone
    """
    count = len(ids) - 1 - steps
    features = head.features(states[:count])
    config = head.config
    shared = config.num_attention_heads // config.num_key_value_heads
    causal = torch.ones(count, count, dtype=torch.bool, device=ids.device).tril()
    at = torch.arange(count, device=ids.device)
    keys: list[Tensor] = []
    values: list[Tensor] = []
    outputs: list[Tensor] = []
    for step in range(steps):
        q, own = head.midlayer.project(embedding[ids[1 + step : 1 + step + count]], features, at + step)
        keys.append(own.keys.repeat_interleave(shared, 1))
        values.append(own.values.repeat_interleave(shared, 1))
        weights = torch.einsum("thd,shd->ths", q, keys[0]).masked_fill(~causal[:, None], float("-inf"))
        diagonal = [(q * key).sum(-1, keepdim=True) for key in keys[1:]]  # (count, heads, 1) each
        shares = torch.softmax(torch.cat((weights, *diagonal), -1) / config.head_dim**0.5, -1)
        attended = torch.einsum("ths,shd->thd", shares[..., :count], values[0])
        for index, value in enumerate(values[1:]):
            attended = attended + shares[..., count + index, None] * value
        features = head.midlayer.finish(attended, features)
        outputs.append(features)
    return outputs
