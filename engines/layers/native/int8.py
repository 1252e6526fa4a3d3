"""Multiplies rows by a matrix of 8-bit integers. Sums are of integers, so they are exact and the same in any batch.

Each row is encoded in 16-bit steps of its own size, as a high and a low byte. The steps are finer than bfloat16, except
for numbers below a hundredth of the row's largest. The processor multiplies unsigned by signed bytes, four at a time.
Compared with bfloat16, weights take half the memory, and a row takes as many instructions.

The matrix is stored in panels of 64 output columns, in which the weights of four neighbouring inputs are adjacent. The
panels are followed by the columns' scales, and by the contribution of the steps' zero, 32768, to sums of high bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from torch import Tensor
from torch.nn import functional

from engines.layers.native.compiled import cached, compiled
from engines.layers.native.matmul import PANEL, VECTORS
from engines.layers.native.pointwise import widened
from engines.layers.native.team import Team, announcing, begin, bounds, enter, go_on, reach, units_of
from engines.layers.native.vectors import (
    FLOAT,
    FLOATS,
    INT32,
    INTEGER_ZEROS,
    LANES,
    PAIRS,
    add_byte_products,
    expect,
    load,
    load_everywhere,
    number,
    pointer,
    registers,
    store,
)

Array = Any
QUAD = 4
MAX_ROWS = 3
"""Rows that a kernel computes at once. With four vectors and two sums each, they take 24 of 32 registers."""
STEPS, ZERO = np.float32(32767.0), np.float32(32768.0)
HALF, NOTHING = np.float32(0.5), np.float32(0.0)
IN_THIS_ORDER = ("nsz",)
"""Flags that keep the order. Numba applies `FAST_MATH` to operations without flags; LLVM would then multiply scale and
step first in the kernel for three rows but last in that for one row, so a row's bits would depend on the batch."""
MIN = np.float32(1e-30)
"""A row of smaller numbers becomes all zeros, because its step would be indistinguishable from zero."""


class Int8Panels:
    """A weight matrix laid out for `multiply_codes`."""

    def __init__(self, weight: Tensor, scales: Tensor, team: Team | None = None) -> None:
        """weight: (out, in) int8; scales: (out,) float32, the value of a step. With more than 65,536
        inputs, a sum might overflow. team: the threads that multiply; None for the caller's thread alone."""
        self.team = team or Team(1)
        self.outputs, self._inputs = weight.shape
        self.quads = -(-self._inputs // QUAD)
        self.width = -(-self.outputs // PANEL) * PANEL
        """Number of columns written: whole panels, in which surplus columns are zeros."""
        surplus = self.width - self.outputs
        padded = functional.pad(weight, (0, QUAD * self.quads - self._inputs, 0, surplus))
        panels = padded.view(-1, PANEL, self.quads, QUAD).transpose(1, 2).contiguous()
        zeros = 128 * padded.sum(1, dtype=torch.int32)
        parts = panels, functional.pad(scales.float(), (0, surplus)), zeros
        self._bytes = torch.cat([part.flatten().view(torch.uint8) for part in parts])
        self.address = self._bytes.data_ptr()
        """Address of the panels, valid as long as this object exists."""
        size = panels.numel()
        self.codes = self._bytes[:size].view(torch.int8).view(panels.shape)
        """(panels, quads, columns of a panel, inputs of a quad)"""
        self.scales = self._bytes[size : size + 4 * self.width].view(torch.float32)

    def rows(self, ids: Tensor) -> Tensor:
        """Rows of the weight, (ids, in) float32."""
        quads = self.codes[ids // PANEL, :, ids % PANEL]
        return quads.flatten(1)[:, : self._inputs].float() * self.scales[ids, None]

    def __call__(self, x: Tensor) -> Tensor:
        """x: (rows, in), rounded to bfloat16. Returns (rows, out) float32."""
        bits = x.bfloat16().contiguous().view(torch.int16).numpy().view(np.uint16)
        rows = bits.shape[0]
        out = torch.empty(rows, self.width)
        arguments = bits, self.address, rows, out.numpy(), *code_scratch(rows, self._inputs)
        self.team.wake()
        cached(codes_together)(self.team.board, self.team.parts, arguments)
        return out[:, : self.outputs]


def code_scratch(rows: int, inputs: int) -> tuple[Array, Array]:
    """Scratch memory of `encode`: the bytes and steps of `rows` rows."""
    return np.zeros(rows * 2 * -(-inputs // QUAD) * QUAD, np.uint8), np.zeros(rows, np.float32)


def _kernel(rows: int) -> Any:
    """Make the function that multiplies `rows` rows by a panel."""

    @intrinsic
    def through_panel(
        typing_context: Any,
        codes: Any,
        steps: Any,
        panel: Any,
        quads: Any,
        scales: Any,
        zeros: Any,
        out: Any,
        width: Any,
    ) -> Any:
        address, count = types.uintp, types.intp
        signature = types.void(address, address, address, count, address, address, address, count)

        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            codes, steps, panel, quads, scales, zeros, out, width = arguments
            codes, panel, zeros = (pointer(builder, each, INT32) for each in (codes, panel, zeros))
            steps, scales, out = (pointer(builder, each, FLOAT) for each in (steps, scales, out))
            for row in range(rows):
                for at in range(VECTORS):
                    expect(builder, out, builder.add(builder.mul(width, number(row)), number(LANES * at)), write=True)
            high = [registers(builder, VECTORS, INTEGER_ZEROS) for _ in range(rows)]
            low = [registers(builder, VECTORS, INTEGER_ZEROS) for _ in range(rows)]
            with cgutils.for_range(builder, quads) as loop:
                here = builder.mul(loop.index, number(PANEL))
                columns = [load(builder, PAIRS, panel, builder.add(here, number(LANES * at))) for at in range(VECTORS)]
                for row in range(rows):
                    place = builder.add(builder.mul(quads, number(2 * row)), loop.index)
                    for sums, start in ((high[row], place), (low[row], builder.add(place, quads))):
                        value = load_everywhere(builder, codes, start)
                        for register, column in zip(sums, columns, strict=True):
                            builder.store(add_byte_products(builder, builder.load(register), value, column), register)
            whole = ir.Constant(FLOATS, [256.0] * LANES)
            for at in range(VECTORS):
                zero = load(builder, PAIRS, zeros, number(LANES * at))
                scale = load(builder, FLOATS, scales, number(LANES * at))
                for row in range(rows):
                    upper = builder.sitofp(builder.sub(builder.load(high[row][at]), zero), FLOATS)
                    lower = builder.sitofp(builder.load(low[row][at]), FLOATS)
                    total = builder.fadd(builder.fmul(upper, whole, flags=IN_THIS_ORDER), lower, flags=IN_THIS_ORDER)
                    step = load_everywhere(builder, steps, number(row))
                    start = builder.add(builder.mul(width, number(row)), number(LANES * at))
                    scaled = builder.fmul(total, scale, flags=IN_THIS_ORDER)
                    store(builder, builder.fmul(scaled, step, flags=IN_THIS_ORDER), out, start)
            return context.get_dummy_value()

        return signature, code

    return through_panel


_one, _two, _three = (_kernel(rows) for rows in range(1, MAX_ROWS + 1))


@compiled
def embed_codes(id_: int, codes: Array, scales: Array, x: Array) -> None:
    """x = a row of the matrix. codes, scales: those of its `Int8Panels`."""
    panel, column = id_ // PANEL, id_ % PANEL
    for at in range(x.shape[0]):
        x[at] = np.float32(codes[panel, at // QUAD, column, at % QUAD]) * scales[id_]


@compiled
def encode(row: int, x: Array, codes: Array, steps: Array) -> None:
    """Encode a row of bfloat16 bits as high bytes and then low bytes, both in whole quads, with the size of its
    step."""
    padded = (x.shape[0] + QUAD - 1) // QUAD * QUAD
    largest = np.uint16(0)
    for at in range(x.shape[0]):
        largest = max(largest, np.uint16(x[at] & np.uint16(0x7FFF)))
    largest_value = widened(largest)
    steps[row] = largest_value / STEPS
    inverse = STEPS / largest_value if largest_value > MIN else NOTHING
    high = codes[2 * row * padded :]
    low = codes[(2 * row + 1) * padded :]
    for at in range(x.shape[0]):
        code = np.int32(widened(x[at]) * inverse + ZERO + HALF)
        high[at] = np.uint8(code >> 8)
        low[at] = np.uint8(code & 255)


@compiled
def multiply_codes_by(
    board: int,
    first: int,
    parts: int,
    part: int,
    x: Array,
    panels: int,
    rows: int,
    out: Array,
    codes: Array,
    steps: Array,
) -> Any:
    """out = x W^T, as a kernel of a team. x: bfloat16 bits; panels, codes, steps: see `through_codes`."""
    chunks = units_of(rows, parts)
    unit = enter(board, first, chunks)
    while unit >= 0:
        start, stop = bounds(unit, chunks, rows)
        for row in range(start, stop):
            encode(row, x[row], codes, steps)
        unit = go_on(board, first, chunks)
    first += chunks
    all_panels = out.shape[1] // PANEL
    units = units_of(all_panels, parts)
    unit = enter(board, first, units)
    while unit >= 0:
        start, stop = bounds(unit, units, all_panels)
        through_codes(x.shape[1], panels, rows, out, start * PANEL, stop * PANEL, codes, steps)
        unit = go_on(board, first, units)
    return first + units


_announce = announcing(multiply_codes_by)


@compiled
def codes_together(board: int, parts: int, arguments: Any) -> None:
    """Run `multiply_codes_by` with the arguments on all threads."""
    first = begin(board)
    if parts > 1:
        _announce(board, first, parts, arguments)
    reach(board, multiply_codes_by(board, first, parts, 0, *arguments))


@compiled
def through_codes(
    inputs: int, panels: int, rows: int, out: Array, start: int, stop: int, codes: Array, steps: Array
) -> None:
    """Compute the columns start..stop-1, whole panels, of out = x W^T. panels: the address of `Int8Panels`; out: as
    wide as whole panels; codes, steps: the rows of x as `encode` writes them."""
    quads = -(-inputs // QUAD)
    width = out.shape[1]
    scales = panels + width * quads * QUAD
    zeros = scales + 4 * width
    for column in range(start, stop, PANEL):
        panel, own_scales, own_zeros = panels + column * quads * QUAD, scales + 4 * column, zeros + 4 * column
        for row in range(0, rows, MAX_ROWS):
            source, own_steps = codes.ctypes.data + 2 * row * quads * QUAD, steps.ctypes.data + 4 * row
            target = out.ctypes.data + 4 * (row * width + column)
            if rows - row >= MAX_ROWS:
                _three(source, own_steps, panel, quads, own_scales, own_zeros, target, width)
            elif rows - row == 2:
                _two(source, own_steps, panel, quads, own_scales, own_zeros, target, width)
            else:
                _one(source, own_steps, panel, quads, own_scales, own_zeros, target, width)
