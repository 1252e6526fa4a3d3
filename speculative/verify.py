"""Decides which drafts, sampled from a known distribution, to keep, and samples the token after them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Accepted(NamedTuple):
    """The verdict on one sequence's drafts."""

    kept: int
    """Number of leading drafts kept."""
    next_id: int
    """The token after the kept drafts, sampled from the target."""


def verify(target: Tensor, draft: Tensor, draft_ids: Tensor, coins: Tensor) -> Accepted:
    """Keep the longest prefix of drafts that the target accepts; output is distributed as the target's.

    target: (k+1, vocabulary) probabilities after 0 .. k drafts; draft: (k, vocabulary), the distribution of each draft,
    temperature and filters applied; draft_ids: (k,) int64; coins: (k+1,) independent, in [0, 1), drawn for this call
    alone. Raises ValueError if the shapes do not match. Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1;
    Chen et al. 2023 (arXiv 2302.01318).
    """
    count = draft_ids.shape[0]
    if target.shape != (count + 1, target.shape[-1]) or draft.shape != (count, target.shape[-1]):
        raise ValueError(f"{count} drafts need {count + 1} target rows and {count} draft rows of the same width")
    if coins.shape != (count + 1,):
        raise ValueError(f"{count} drafts need {count + 1} coins, got {tuple(coins.shape)}")
    p, q = target.double(), torch.nan_to_num(draft.double(), nan=0.0, posinf=0.0).clamp_(min=0.0)
    rows = torch.arange(count, device=p.device)
    drafted_p, drafted_q = p[rows, draft_ids], q[rows, draft_ids]
    # u * q < p is u < p / q without the division; a q of 0 never produced this draft
    kept = (coins[:count].double() * drafted_q < drafted_p) & (drafted_q > 0)
    accepted = int(kept.long().cumprod(0).sum())
    weights = p[accepted]
    if accepted < count:
        rest = (weights - q[accepted]).clamp_(min=0.0)
        # if p and q differ only by rounding, any token of p is right
        weights = rest if float(rest.sum()) > 0 else weights
    cumulated = weights.cumsum(0)
    next_id = torch.searchsorted(cumulated, (coins[-1].double() * cumulated[-1])[None], right=True)
    # for a coin close to 1, rounding may yield the total itself
    last = int(weights.nonzero()[-1])
    return Accepted(accepted, min(int(next_id), last))
