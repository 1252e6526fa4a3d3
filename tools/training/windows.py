"""The input of a trainer: windows of tokens, each with a mask of the tokens whose prediction counts.

A source is addressed by number and not read in order, so that a run resumed at step n gets the same batches as an
uninterrupted one.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Window(NamedTuple):
    """`length + 1` token ids, and for each whether its prediction from those before it counts."""

    tokens: list[int]
    counted: list[bool]


class WindowSource(Protocol):
    """Every window depends only on the source's own seed and the arguments."""

    def window(self, number: int, length: int) -> Window:
        """The `number`-th window, padded (uncounted) or cut to `length + 1` tokens."""
        ...


class Batch(NamedTuple):
    """Inputs, targets and mask, each (windows, length)."""

    inputs: Tensor
    targets: Tensor
    counted: Tensor


def batch(source: WindowSource, first: int, count: int, length: int) -> Batch:
    """Windows first .. first + count - 1. Raises ValueError if one does not have `length + 1` tokens."""
    windows = [source.window(number, length) for number in range(first, first + count)]
    for window in windows:
        if len(window.tokens) != length + 1 or len(window.counted) != length + 1:
            raise ValueError(f"a window of {len(window.tokens)} tokens where {length + 1} are wanted")
    tokens = torch.tensor([window.tokens for window in windows])
    counted = torch.tensor([window.counted for window in windows])
    return Batch(tokens[:, :-1], tokens[:, 1:], counted[:, 1:])


def fitted(tokens: list[int], counted: list[bool], length: int, pad_id: int) -> Window:
    """Cut or padded to `length + 1`; padding does not count."""
    missing = length + 1 - len(tokens)
    if missing <= 0:
        return Window(tokens[: length + 1], counted[: length + 1])
    return Window(tokens + [pad_id] * missing, counted + [False] * missing)
