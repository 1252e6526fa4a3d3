"""Rows times a weight matrix: float32 rows, bfloat16 weights, float32 sums.

The weights lie in panels of 64 output columns, so that the next 64 weights are always the next in memory. A kernel
takes up to six rows through one panel and keeps their 6 x 64 sums in registers. Every sum is made in the order of the
inputs, one after the other, whatever else is computed: a row has the same bits alone and among others.
"""

from __future__ import annotations

from typing import Any

import torch
from numba.core import cgutils, types
from numba.extending import intrinsic
from torch import Tensor
from torch.nn import functional

from engines.layers.native.compiled import compiled
from engines.layers.native.vectors import (
    FLOAT,
    INT16,
    LANES,
    ZEROS,
    load_bfloat16,
    multiply_add,
    number,
    pointer,
    spread,
    store_floats,
    variable,
)

Array = Any
VECTORS = 4
PANEL = VECTORS * LANES
"""Columns in a panel."""


class Panels:
    """A weight matrix laid out for `multiply`."""

    def __init__(self, weight: Tensor) -> None:
        """weight: (out, in) bfloat16."""
        self.outputs, self.inputs = weight.shape
        self.width = -(-self.outputs // PANEL) * PANEL
        """Columns that `multiply` writes: whole panels, the surplus zeros."""
        padded = functional.pad(weight, (0, 0, 0, self.width - self.outputs))
        self._panels = padded.view(-1, PANEL, self.inputs).transpose(1, 2).contiguous()
        self.address = self._panels.data_ptr()
        """Valid as long as this object."""

    def __call__(self, x: Tensor) -> Tensor:
        """x: (rows, in) float32. Returns (rows, out) float32."""
        x = x.contiguous()
        out = torch.empty(x.shape[0], self.width)
        multiply(x.data_ptr(), self.inputs, x.shape[0], self.address, self.inputs, self.width, out.data_ptr())
        return out[:, : self.outputs]


def _kernel(rows: int) -> Any:
    """Makes the function that takes `rows` rows through a panel."""

    @intrinsic
    def through_panel(typing_context: Any, x: Any, x_stride: Any, panel: Any, inputs: Any, out: Any, width: Any) -> Any:
        signature = types.void(types.uintp, types.intp, types.uintp, types.intp, types.uintp, types.intp)

        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, x_stride, panel, inputs, out, width = arguments
            x, weights, out = (
                pointer(builder, x, FLOAT),
                pointer(builder, panel, INT16),
                pointer(builder, out, FLOAT),
            )
            sums = [[variable(builder, ZEROS) for _ in range(VECTORS)] for _ in range(rows)]
            for row in sums:
                for register in row:
                    builder.store(ZEROS, register)
            with cgutils.for_range(builder, inputs) as loop:
                here = builder.gep(weights, [builder.mul(loop.index, number(PANEL))])
                columns = [load_bfloat16(builder, here, LANES * at) for at in range(VECTORS)]
                for number_, row in enumerate(sums):
                    place = builder.add(builder.mul(x_stride, number(number_)), loop.index)
                    value = spread(builder, builder.load(builder.gep(x, [place])))
                    for register, column in zip(row, columns, strict=True):
                        builder.store(multiply_add(builder, value, column, builder.load(register)), register)
            for number_, row in enumerate(sums):
                start = builder.mul(width, number(number_))
                for at, register in enumerate(row):
                    store_floats(builder, builder.load(register), out, builder.add(start, number(LANES * at)))
            return context.get_dummy_value()

        return signature, code

    return through_panel


_one, _two, _three, _four, _five, _six = (_kernel(rows) for rows in range(1, 7))


@compiled
def multiply(x: int, x_stride: int, rows: int, panels: int, inputs: int, width: int, out: int) -> None:
    """out = x W^T. x, panels, out: addresses; x_stride: floats from one row to the next; out: (rows, width)."""
    for column in range(0, width, PANEL):
        panel = panels + 2 * column * inputs
        row = 0
        while row < rows:
            source, target = x + 4 * row * x_stride, out + 4 * (row * width + column)
            left = rows - row
            if left >= 6:
                _six(source, x_stride, panel, inputs, target, width)
            elif left == 5:
                _five(source, x_stride, panel, inputs, target, width)
            elif left == 4:
                _four(source, x_stride, panel, inputs, target, width)
            elif left == 3:
                _three(source, x_stride, panel, inputs, target, width)
            elif left == 2:
                _two(source, x_stride, panel, inputs, target, width)
            else:
                _one(source, x_stride, panel, inputs, target, width)
            row += 6


@compiled
def through(x: Array, inputs: int, panels: int, rows: int, out: Array) -> None:
    """`multiply` for arrays that may be wider than what is read of them; out: as wide as whole panels."""
    multiply(x.ctypes.data, x.shape[1], rows, panels, inputs, out.shape[1], out.ctypes.data)
