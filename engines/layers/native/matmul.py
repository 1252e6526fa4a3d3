"""Multiplies bfloat16 rows by a bfloat16 weight matrix, with sums in float32.

The weights are stored in panels of 64 output columns. In a panel, the weights of two neighbouring inputs form a pair,
and pairs are stored in the order of use. A kernel multiplies up to six rows by one panel and keeps their 6 x 64 sums in
registers. Sums are in the order of the inputs, so a row has the same bits in any batch.
"""

from __future__ import annotations

from typing import Any

import torch
from numba.core import cgutils, types
from numba.extending import intrinsic
from torch import Tensor
from torch.nn import functional

from engines.layers.native.compiled import cached, compiled
from engines.layers.native.pointwise import widened
from engines.layers.native.team import Team, announcing, begin, bounds, enter, go_on, reach, units_of
from engines.layers.native.vectors import (
    FLOAT,
    LANES,
    PAIR,
    PAIRS,
    add_products,
    expect,
    load,
    load_everywhere,
    number,
    pointer,
    registers,
    store,
)

Array = Any
VECTORS = 4
PANEL = VECTORS * LANES
"""Columns of a panel."""
MAX_ROWS = 6
"""Rows that a kernel computes at once. With four vectors each, they take 24 of 32 registers, which hides latency."""


class Panels:
    """A weight matrix laid out for `multiply`."""

    def __init__(self, weight: Tensor, team: Team | None = None) -> None:
        """weight: (out, in) bfloat16. team: the threads that multiply; None for the caller's thread alone."""
        self.team = team or Team(1)
        self.outputs, inputs = weight.shape
        self._inputs = inputs
        self.pairs = -(-inputs // 2)
        """Number of pairs of inputs; an odd input is paired with zeros."""
        self.width = -(-self.outputs // PANEL) * PANEL
        """Number of columns that `multiply` writes: whole panels, in which surplus columns are zeros."""
        padded = functional.pad(weight, (0, 2 * self.pairs - inputs, 0, self.width - self.outputs))
        self._panels = padded.view(-1, PANEL, self.pairs, 2).transpose(1, 2).contiguous()
        self.address = self._panels.data_ptr()
        """Address of the panels, valid as long as this object exists."""

    def __call__(self, x: Tensor) -> Tensor:
        """x: (rows, in), rounded to bfloat16. Returns (rows, out) float32."""
        x = x.bfloat16()
        x = functional.pad(x, (0, 1)) if x.shape[1] % 2 else x.contiguous()
        out = torch.empty(x.shape[0], self.width)
        arguments = x.data_ptr(), self.pairs, x.shape[0], self.address, self.pairs, self.width, out.data_ptr()
        self.team.wake()
        cached(multiply_together)(self.team.board, self.team.parts, arguments)
        return out[:, : self.outputs]

    def rows(self, ids: Tensor) -> Tensor:
        """Rows of the weight, (ids, in)."""
        return self.table[ids // PANEL, :, ids % PANEL].flatten(1)[:, : self._inputs]

    @property
    def table(self) -> Tensor:
        """(panels, pairs, columns of a panel, 2)"""
        return self._panels


def _kernel(rows: int) -> Any:
    """Make the function that multiplies `rows` rows by a panel."""

    @intrinsic
    def through_panel(typing_context: Any, x: Any, x_stride: Any, panel: Any, pairs: Any, out: Any, width: Any) -> Any:
        signature = types.void(types.uintp, types.intp, types.uintp, types.intp, types.uintp, types.intp)

        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, x_stride, panel, pairs, out, width = arguments
            x, panel, out = pointer(builder, x, PAIR), pointer(builder, panel, PAIR), pointer(builder, out, FLOAT)
            for row in range(rows):
                for at in range(VECTORS):
                    expect(builder, out, builder.add(builder.mul(width, number(row)), number(LANES * at)), write=True)
            sums = [registers(builder, VECTORS) for _ in range(rows)]
            with cgutils.for_range(builder, pairs) as loop:
                here = builder.mul(loop.index, number(PANEL))
                columns = [load(builder, PAIRS, panel, builder.add(here, number(LANES * at))) for at in range(VECTORS)]
                for row, own in enumerate(sums):
                    place = builder.add(builder.mul(x_stride, number(row)), loop.index)
                    value = load_everywhere(builder, x, place)
                    for register, column in zip(own, columns, strict=True):
                        builder.store(add_products(builder, builder.load(register), value, column), register)
            for row, own in enumerate(sums):
                start = builder.mul(width, number(row))
                for at, register in enumerate(own):
                    store(builder, builder.load(register), out, builder.add(start, number(LANES * at)))
            return context.get_dummy_value()

        return signature, code

    return through_panel


_one, _two, _three, _four, _five, _six = (_kernel(rows) for rows in range(1, MAX_ROWS + 1))


@compiled
def multiply(
    x: int, x_stride: int, rows: int, panels: int, pairs: int, width: int, out: int, first: int, stop: int
) -> None:
    """Compute the columns first..stop-1, whole panels, of out = x W^T. x, panels, out: addresses; x_stride: pairs from
    one row to the next; out: (rows, width)."""
    for column in range(first, stop, PANEL):
        panel = panels + 4 * column * pairs
        for row in range(0, rows, MAX_ROWS):
            source, target = x + 4 * row * x_stride, out + 4 * (row * width + column)
            left = rows - row
            if left >= MAX_ROWS:
                _six(source, x_stride, panel, pairs, target, width)
            elif left == 5:
                _five(source, x_stride, panel, pairs, target, width)
            elif left == 4:
                _four(source, x_stride, panel, pairs, target, width)
            elif left == 3:
                _three(source, x_stride, panel, pairs, target, width)
            elif left == 2:
                _two(source, x_stride, panel, pairs, target, width)
            else:
                _one(source, x_stride, panel, pairs, target, width)


@compiled
def multiply_by(
    board: int,
    first: int,
    parts: int,
    part: int,
    x: int,
    x_stride: int,
    rows: int,
    panels: int,
    pairs: int,
    width: int,
    out: int,
) -> Any:
    """A whole `multiply`, as a kernel of a team."""
    units = units_of(width // PANEL, parts)
    unit = enter(board, first, units)
    while unit >= 0:
        start, stop = bounds(unit, units, width // PANEL)
        multiply(x, x_stride, rows, panels, pairs, width, out, start * PANEL, stop * PANEL)
        unit = go_on(board, first, units)
    return first + units


_announce = announcing(multiply_by)


@compiled
def multiply_together(board: int, parts: int, arguments: Any) -> None:
    """Run `multiply_by` with the arguments on all threads."""
    first = begin(board)
    if parts > 1:
        _announce(board, first, parts, arguments)
    reach(board, multiply_by(board, first, parts, 0, *arguments))


@compiled
def through(x: Array, panels: int, rows: int, out: Array, first: int, stop: int) -> None:
    """`multiply` for arrays. x: bfloat16 bits, as wide as the inputs; out: as wide as whole panels."""
    pairs = x.shape[1] // 2
    multiply(x.ctypes.data, pairs, rows, panels, pairs, out.shape[1], out.ctypes.data, first, stop)


@compiled
def embed_panels(id_: int, table: Array, x: Array) -> None:
    """x = a row of the matrix. table: the bits of its `Panels`."""
    panel, column = id_ // PANEL, id_ % PANEL
    for at in range(x.shape[0]):
        x[at] = widened(table[panel, at // 2, column, at % 2])
