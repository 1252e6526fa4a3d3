"""Picks the next token of every sequence of a step.

Rows form three groups, each one batch of tensor operations: greedy, plainly sampled, and filtered (top-k, top-p,
min-p). Only filtered rows need a search of their likeliest tokens. A sampled row uses one uniform number of its
sequence's generator.

Logits without a finite maximum, from a broken weight or an overflow, have no likeliest token, and the row yields
`NO_TOKEN`.
"""

from __future__ import annotations

from array import array
from math import isfinite
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engines.embedded.grammar.mask import mask_
from engines.embedded.output import TokenLogprob
from engines.embedded.sequence import Sequence
from speculative.verify import verify

NO_TOKEN = -1
LIKELIEST = 256
"""Tokens of a filtered row that are sorted first. Sorting a vocabulary of 49,152 takes as long as computing a token of
a small model, and a hundred times as long as finding these tokens."""


class Picked(NamedTuple):
    """The token of one sequence."""

    id: int
    """`NO_TOKEN` if the row's largest logit is not finite."""
    logprob: TokenLogprob | None


def pick(logits: Tensor, sequences: tuple[Sequence, ...]) -> list[Picked]:
    """One token per row. logits: (rows, vocabulary) float32, may be overwritten; row i belongs to sequences[i].

    A sequence with drafts has consecutive rows, for the next token and for the token after each draft.
    """
    if not [sequence for sequence in sequences if not sequence.greedy_only]:
        return [Picked(id_, None) for id_ in _likeliest(logits)]
    # read before bias and grammars, which may hide NaN and infinity
    largest = logits.amax(-1)
    reporting = [row for row, sequence in enumerate(sequences) if sequence.sampling.logprobs is not None]
    # a copy, because the model's own values are reported and the lines below change the logits
    own = logits[reporting].log_softmax(-1) if reporting else None
    _adjust_(logits, sequences)
    for row, sequence in enumerate(sequences):
        if sequence.opening is not None:
            _allow_(logits[row], sequence.opening.allowed())
    guided = [row for row, sequence in enumerate(sequences) if sequence.guide is not None]
    if guided:
        # the rows of a sequence with drafts are contiguous
        distinct = dict.fromkeys(sequences[row] for row in guided)
        mask_(logits, guided, [(s.guide, s.drafts) for s in distinct if s.guide is not None])
    _withhold_ends_(logits, sequences)
    groups: tuple[list[int], list[int], list[int]] = ([], [], [])
    for row, sequence in enumerate(sequences):
        groups[_kind(sequence)].append(row)
    greedy, plain, filtered = groups
    if len(greedy) == len(sequences):
        ids = logits.argmax(-1)
    else:
        ids = torch.empty(len(sequences), dtype=torch.int64, device=logits.device)
        if greedy:
            ids[greedy] = logits[greedy].argmax(-1)
        for rows, law in ((plain, _probabilities), (filtered, _filtered)):
            if rows:
                ids[rows] = _draw(law(logits[rows], [sequences[row] for row in rows]), [sequences[row] for row in rows])
    chosen: list[int] = ids.tolist()  # waits for the GPU
    chosen = _finite(chosen, largest.tolist())
    if own is None:
        return [Picked(id_, None) for id_ in chosen]
    counts = [sequences[row].sampling.logprobs or 0 for row in reporting]
    reported = report(own, [max(chosen[row], 0) for row in reporting], counts)
    reports = {row: entry for row, entry in zip(reporting, reported, strict=True) if chosen[row] != NO_TOKEN}
    return [Picked(id_, reports.get(row)) for row, id_ in enumerate(chosen)]


def _likeliest(logits: Tensor) -> list[int]:
    """The id of each row's largest logit. Both libraries consider NaN the largest."""
    if logits.device.type == "cpu":
        # numpy's argmax takes a tenth of torch's time on a CPU
        rows = logits.numpy()
        best: list[int] = rows.argmax(-1).tolist()
        if isfinite(np.maximum.reduce(rows, axis=None)):
            return best
    values, ids = logits.max(-1)
    return _finite(ids.tolist(), values.tolist())


def _finite(ids: list[int], largest: list[float]) -> list[int]:
    """The ids, with `NO_TOKEN` for each row whose largest logit is not finite."""
    if all(map(isfinite, largest)):
        return ids
    return [id_ if isfinite(value) else NO_TOKEN for id_, value in zip(ids, largest, strict=True)]


def report(log_probabilities: Tensor, ids: list[int], counts: list[int]) -> list[TokenLogprob]:
    """Report each row's token with its log probability, and the `counts[row]` likeliest tokens.

    log_probabilities: (rows, vocabulary); ids: the token of each row.
    """
    chosen = log_probabilities.gather(1, torch.tensor(ids, device=log_probabilities.device)[:, None])[:, 0].tolist()
    max_count = max(counts)
    if not max_count:
        return [TokenLogprob(id_, value, ()) for id_, value in zip(ids, chosen, strict=True)]
    top = log_probabilities.topk(min(max_count, log_probabilities.shape[1]))
    tops = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [
        TokenLogprob(id_, value, tuple(zip(top_ids[:count], values[:count], strict=True)))
        for id_, value, (top_ids, values), count in zip(ids, chosen, tops, counts, strict=True)
    ]


def _kind(sequence: Sequence) -> int:
    """The group of a row: 0 for greedy, 1 for plain, 2 for filtered."""
    sampling = sequence.sampling
    if sampling.temperature == 0 or sampling.top_k == 1:
        return 0
    return 2 if sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0 else 1


def _adjust_(logits: Tensor, sequences: tuple[Sequence, ...]) -> None:
    """Apply bias and penalties in place by row, because few rows have any."""
    before, ahead = None, 0
    for row, sequence in enumerate(sequences):
        # a sequence's first row precedes its drafts, the second follows the first draft, and so on
        ahead = ahead + 1 if sequence is before else 0
        before = sequence
        if sequence.bias is not None:
            logits[row] += sequence.bias.to(logits.device)
        sampling = sequence.sampling
        if (seen := sequence.seen_after(ahead)) is not None:
            own, factor = logits[row], sampling.repetition_penalty
            logits[row] = torch.where(seen.to(logits.device), torch.where(own > 0, own / factor, own * factor), own)
        if (counts := sequence.counts_after(ahead)) is not None:
            penalty = sampling.frequency_penalty * counts + sampling.presence_penalty * (counts > 0)
            logits[row] -= penalty.to(logits.device)


def _withhold_ends_(logits: Tensor, sequences: tuple[Sequence, ...]) -> None:
    """Exclude end ids before `min_tokens`, in place, unless the text's format or opening allows nothing else."""
    before, ahead = None, 0
    for row, sequence in enumerate(sequences):
        ahead = ahead + 1 if sequence is before else 0
        before = sequence
        if not sequence.end_ids or sequence.may_end(ahead):
            continue
        ends = logits[row, sequence.end_ids]
        logits[row, sequence.end_ids] = -torch.inf
        bound = sequence.guide is not None or sequence.opening is not None
        if bound and not logits[row].isfinite().any():
            logits[row, sequence.end_ids] = ends


def _allow_(logits: Tensor, ids: array[int]) -> None:
    """Allow only these ids, in place. logits: (vocabulary). ids: not empty."""
    index = torch.frombuffer(ids, dtype=torch.int64).to(logits.device)
    kept = logits[index]
    logits.fill_(float("-inf"))
    logits[index] = kept


def _probabilities(logits: Tensor, sequences: list[Sequence]) -> Tensor:
    # temperatures below 1e-5 would overflow float32 logits
    temperatures = [max(sequence.sampling.temperature, 1e-5) for sequence in sequences]
    return torch.softmax(logits / torch.tensor(temperatures, device=logits.device)[:, None], -1)


def _filtered(logits: Tensor, sequences: list[Sequence]) -> Tensor:
    """Unnormalised weights by id, after top-k, top-p and min-p."""
    vocabulary = logits.shape[1]
    probabilities = _probabilities(logits, sequences)
    limits = [(s.sampling.top_p, s.sampling.top_k or vocabulary, s.sampling.min_p) for s in sequences]
    top_p, top_k, min_p = torch.tensor(limits, device=logits.device).unsqueeze(-1).unbind(1)

    def kept(highest: Tensor) -> Tensor:
        # a token stays while the mass before it is below top_p, so the first one always stays
        before = highest.cumsum(-1) - highest
        ranks = torch.arange(highest.shape[1], device=logits.device)
        keep = (before < top_p) & (ranks < top_k) & (highest >= min_p * highest[:, :1])
        keep[:, 0] = True
        return keep

    if vocabulary > LIKELIEST:
        ids = probabilities.topk(LIKELIEST, sorted=False).indices.sort(-1).values
        highest, order = probabilities.gather(1, ids).sort(stable=True, dim=-1, descending=True)
        keep = kept(highest)
        # if a token as likely as the last of them stays, tokens beyond them may be as likely
        if not (keep & (highest <= highest[:, -1:])).any():
            return torch.zeros_like(probabilities).scatter_(1, ids.gather(1, order), highest * keep)
    highest, order = probabilities.sort(stable=True, dim=-1, descending=True)
    return torch.zeros_like(probabilities).scatter_(1, order, highest * kept(highest))


def _draw(weights: Tensor, sequences: list[Sequence]) -> Tensor:
    """Draw an id for every row. Rows of sampled drafts are verified with the drafts' distribution."""
    ids = _invert(weights, sequences)
    for sequence in dict.fromkeys(s for s in sequences if s.drafts and s.draft_law is not None):
        first, count = sequences.index(sequence), len(sequence.drafts)
        assert sequence.draft_law is not None
        target = weights[first : first + count + 1].double()
        target /= target.sum(-1, keepdim=True)
        coins = torch.tensor(sequence.fresh_coins(count + 1), dtype=torch.float64, device=weights.device)
        drafts = torch.tensor(sequence.drafts, device=weights.device)
        kept, next_id = verify(target, sequence.draft_law[:count].to(weights.device), drafts, coins)
        # the accepted drafts and one more token are kept; the ids after it are read only if rounding made that token
        # equal to the next draft, and are then valid too
        ids[first : first + kept] = drafts[:kept]
        ids[first + kept] = next_id
    return ids


def _invert(weights: Tensor, sequences: list[Sequence]) -> Tensor:
    """The index at which the cumulated weight passes a uniform share of the total; its weight is never 0."""
    cumulated = weights.double().cumsum(-1)
    shares = torch.tensor([sequence.draw() for sequence in sequences], dtype=torch.float64, device=weights.device)
    targets = (shares * cumulated[:, -1])[:, None]
    return torch.searchsorted(cumulated, targets, right=True)[:, 0].clamp_(max=weights.shape[1] - 1)
