"""One sequence's drafts by an EAGLE head: it follows the target's hidden states and continues from the last one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from speculative.draws import Draws
from speculative.eagle.branches import grow
from speculative.eagle.head import EagleHead, KeysValues
from speculative.tree import DraftTree


class EagleDrafts:
    """Keys, values and last output of the head over the indices it has seen.

    Hidden states are kept as they arrive and processed together when a draft is requested, so that a sequence without
    drafts costs nothing. Indices before the first one (a cached prefix) stay unknown to the head: its drafts are worse,
    with no other effect.
    """

    def __init__(self, head: EagleHead, embedding: Tensor) -> None:
        """embedding: the target's table."""
        self._head = head
        self._embedding = embedding
        self._first = 0
        """Index of the first of `_states`, which are not yet processed."""
        self._states: list[Tensor] = []
        self._past: KeysValues | None = None
        self._output: Tensor | None = None
        self._next = 0
        """The next index after the last processed or kept state."""

    def learn(self, start: int, states: Tensor) -> None:
        """The target computed tokens start, start + 1, … (all of them right). states: (n, 3 * hidden)."""
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
        """The likeliest `count` drafts after `tokens`; [] unless all tokens but the last are known."""
        found = self._follow(tokens)
        return [] if found is None else self._head.draft(*found, self._next - 1, count, self._embedding)

    @torch.inference_mode()
    def sample(self, tokens: Sequence[int], count: int, temperature: float) -> Draws | None:
        """The same sampled at a temperature, for a text that is sampled itself; None where `propose` returns []."""
        found = self._follow(tokens)
        if found is None:
            return None
        return self._head.sample(*found, self._next - 1, count, self._embedding, temperature)

    @torch.inference_mode()
    def tree(self, tokens: Sequence[int], count: int, depth: int, width: int) -> DraftTree | None:
        """The `count` likeliest drafts, branches included; None where `propose` returns []."""
        found = self._follow(tokens)
        if found is None:
            return None
        return grow(self._head, *found, self._next - 1, self._embedding, count, depth, width)

    def _follow(self, tokens: Sequence[int]) -> tuple[Tensor, KeysValues] | None:
        """Process the states; returns the last output, and keys and values."""
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
        """The same state for a sequence that continues differently; no tensor in it is ever changed in place."""
        twin = EagleDrafts(self._head, self._embedding)
        twin._first, twin._next = self._first, self._next
        twin._states, twin._past, twin._output = list(self._states), self._past, self._output
        return twin
