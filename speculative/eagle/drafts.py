"""Drafts one sequence with an EAGLE head, which follows the target's hidden states and continues from the last one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from speculative.draws import Draws
from speculative.eagle.branches import grow
from speculative.eagle.head import EagleHead, KeysValues
from speculative.tree import DraftTree


class EagleDrafts:
    """Keys, values and last output of the head over the indices that it has processed.

    Hidden states are kept as they arrive and processed together when a draft is requested, so that a sequence without
    drafts costs nothing. Indices before the first one (a cached prefix) stay unknown to the head, which only makes its
    drafts worse.
    """

    def __init__(self, head: EagleHead, embedding: Tensor) -> None:
        """embedding: the target's embedding table."""
        self._head = head
        self._embedding = embedding
        self._first = 0
        """Index of the first state in `_states`, which holds the unprocessed states."""
        self._states: list[Tensor] = []
        self._past: KeysValues | None = None
        self._output: Tensor | None = None
        self._next = 0
        """The index after the last state, processed or not."""

    def learn(self, start: int, states: Tensor) -> None:
        """Record the target's states after tokens start, start + 1, …, all of them final. states: (n, 3 * hidden)."""
        if start != self._next:
            # the sequence was preempted and restarts elsewhere
            self._past = self._output = None
            self._states = []
        if not self._states:
            self._first = start
        self._states.append(states)
        self._next = start + states.shape[0]

    @torch.inference_mode()
    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        """The `count` likeliest drafts after `tokens`; [] unless the states of all tokens but the last are known."""
        followed = self._follow(tokens)
        return [] if followed is None else self._head.draft(*followed, self._next - 1, count, self._embedding)

    @torch.inference_mode()
    def sample(self, tokens: Sequence[int], count: int, temperature: float) -> Draws | None:
        """Sample `count` drafts, for a text that is itself sampled; None where `propose` returns []."""
        followed = self._follow(tokens)
        if followed is None:
            return None
        return self._head.sample(*followed, self._next - 1, count, self._embedding, temperature)

    @torch.inference_mode()
    def tree(self, tokens: Sequence[int], count: int, depth: int, width: int) -> DraftTree | None:
        """The `count` likeliest drafts, branches included; None where `propose` returns []."""
        followed = self._follow(tokens)
        if followed is None:
            return None
        return grow(self._head, *followed, self._next - 1, self._embedding, count, depth, width)

    def _follow(self, tokens: Sequence[int]) -> tuple[Tensor, KeysValues] | None:
        """Process the new states; return the last output, keys and values, or None where `propose` returns []."""
        if len(tokens) != self._next + 1:
            return None
        if self._states:
            # prompts and generated tokens may have been computed in different formats
            states = torch.cat([part.to(self._embedding.dtype) for part in self._states])
            stop = self._first + states.shape[0]
            device = states.device
            following = torch.tensor(tokens[self._first + 1 : stop + 1], device=device)
            positions = torch.arange(self._first, stop, device=device)
            features = self._head.features(states)
            outputs, self._past = self._head.extend(self._embedding[following], features, positions, self._past)
            self._output, self._states = outputs[-1], []
        return None if self._output is None or self._past is None else (self._output, self._past)

    def fork(self) -> EagleDrafts:
        """A copy for a sequence that continues differently. It shares the tensors, which never change in place."""
        twin = EagleDrafts(self._head, self._embedding)
        twin._first, twin._next = self._first, self._next
        twin._states, twin._past, twin._output = list(self._states), self._past, self._output
        return twin
