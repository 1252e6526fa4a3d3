"""The rows of a batch by adapter. One batch may have several adapters, and rows without one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engines.embedded.lora.adapter import Adapter


class AdaptedRows:
    """Adds the adapters' contribution to the output of a linear layer, all rows of an adapter at once."""

    def __init__(self, rows: dict[Adapter, list[int]], device: torch.device | None = None) -> None:
        """rows: the rows of each adapter, ascending."""
        self._parts = [(adapter, torch.tensor(own, device=device)) for adapter, own in rows.items()]

    def add_(self, output: Tensor, x: Tensor, layer: int, group: str) -> Tensor:
        """Add to `output`, (tokens, out), and return it. x: (tokens, in), the input of the linear layer."""
        for adapter, rows in self._parts:
            update = adapter.update(layer, group)
            if update is not None:
                output.index_add_(0, rows, update(x.index_select(0, rows)))
        return output


def adapted_rows(
    adapters: Iterable[tuple[Adapter | None, int]], device: torch.device | None = None
) -> AdaptedRows | None:
    """The rows by adapter; None if no row has one. adapters: each sequence's, with its number of rows, in order."""
    rows: dict[Adapter, list[int]] = {}
    row = 0
    for adapter, count in adapters:
        if adapter is not None:
            rows.setdefault(adapter, []).extend(range(row, row + count))
        row += count
    return AdaptedRows(rows, device) if rows else None
