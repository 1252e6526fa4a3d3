"""The rows of a batch that are computed with each adapter: one batch may hold several, and rows with none."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engines.embedded.lora.adapter import Adapter


class AdaptedRows:
    """Adds the adapters' contribution to the output of a linear layer. The rows of one adapter are multiplied
    together."""

    def __init__(self, rows: dict[Adapter, list[int]], device: torch.device | None = None) -> None:
        """rows: by adapter, ascending."""
        self._parts = [(adapter, torch.tensor(own, device=device)) for adapter, own in rows.items()]

    def add_(self, output: Tensor, x: Tensor, layer: int, group: str) -> Tensor:
        """output: (tokens, out), changed and returned; x: (tokens, in), the input of the linear layer."""
        for adapter, rows in self._parts:
            update = adapter.update(layer, group)
            if update is not None:
                output.index_add_(0, rows, update(x.index_select(0, rows)))
        return output


def adapted_rows(
    adapters: Iterable[tuple[Adapter | None, int]], device: torch.device | None = None
) -> AdaptedRows | None:
    """adapters: of each sequence in the batch's order, with its number of rows. None: no row has one."""
    rows: dict[Adapter, list[int]] = {}
    row = 0
    for adapter, count in adapters:
        if adapter is not None:
            rows.setdefault(adapter, []).extend(range(row, row + count))
        row += count
    return AdaptedRows(rows, device) if rows else None
