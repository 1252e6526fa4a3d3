"""Building blocks of the kernels in LLVM's language: sixteen float32 at once, whatever the processor makes of them.

LLVM turns a vector of sixteen into one AVX-512 register, two AVX registers or four NEON registers. The functions here
emit instructions while a kernel is compiled; `builder` is where they go.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 16
FLOAT = ir.FloatType()
INT16, INT32, INT64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOATS = ir.VectorType(FLOAT, LANES)
INTS = ir.VectorType(INT32, LANES)
SHORTS = ir.VectorType(INT16, LANES)
ZEROS = ir.Constant(FLOATS, [0.0] * LANES)


def number(value: int) -> Any:
    """A 64-bit constant."""
    return ir.Constant(INT64, value)


def pointer(builder: Any, address: Any, kind: Any) -> Any:
    """An address as a pointer to `kind`."""
    return builder.inttoptr(address, kind.as_pointer())


def spread(builder: Any, value: Any) -> Any:
    """One float in all lanes."""
    first = builder.insert_element(ir.Constant(FLOATS, ir.Undefined), value, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, ir.Constant(FLOATS, ir.Undefined), ir.Constant(INTS, [0] * LANES))


def load_bfloat16(builder: Any, shorts: Any, offset: int) -> Any:
    """Sixteen bfloat16 from `shorts + offset`, widened: they are the upper halves of float32."""
    at = builder.bitcast(builder.gep(shorts, [number(offset)]), SHORTS.as_pointer())
    loaded = builder.load(at)
    loaded.align = 2
    wide = builder.shl(builder.zext(loaded, INTS), ir.Constant(INTS, [16] * LANES))
    return builder.bitcast(wide, FLOATS)


def load_floats(builder: Any, floats: Any, offset: Any) -> Any:
    """Sixteen float32 from `floats + offset`."""
    at = builder.bitcast(builder.gep(floats, [offset]), FLOATS.as_pointer())
    loaded = builder.load(at)
    loaded.align = 4
    return loaded


def store_floats(builder: Any, values: Any, floats: Any, offset: Any) -> None:
    """Write them to `floats + offset`."""
    at = builder.bitcast(builder.gep(floats, [offset]), FLOATS.as_pointer())
    stored = builder.store(values, at)
    stored.align = 4


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    kind = ir.FunctionType(FLOATS, [FLOATS, FLOATS, FLOATS])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
    return builder.call(function, [a, b, c])


def variable(builder: Any, value: Any) -> Any:
    """A register that a loop changes."""
    return cgutils.alloca_once_value(builder, value)


@intrinsic
def bits_of(typing_context: Any, value: Any) -> Any:
    """The bits of a float32 as uint32."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], INT32)

    return types.uint32(types.float32), code


@intrinsic
def float_of(typing_context: Any, bits: Any) -> Any:
    """The float32 with these bits, a uint32."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], FLOAT)

    return types.float32(types.uint32), code
