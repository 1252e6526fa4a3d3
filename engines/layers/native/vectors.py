"""Building blocks of the kernels in LLVM IR, for sixteen float32 or sixteen pairs of bfloat16 at once.

LLVM turns a vector of sixteen into one AVX-512 register, two AVX registers or four NEON registers. While a kernel is
compiled, the functions here emit instructions to `builder`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 16
LINE_BYTES = 64
"""A line of the processor's cache."""
FLOAT = ir.FloatType()
INT32, INT64 = ir.IntType(32), ir.IntType(64)
PAIR = INT32
"""Two bfloat16 numbers, the first in the lower half."""
FLOATS = ir.VectorType(FLOAT, LANES)
PAIRS = ir.VectorType(PAIR, LANES)
ZEROS = ir.Constant(FLOATS, [0.0] * LANES)
INTEGER_ZEROS = ir.Constant(PAIRS, [0] * LANES)
NATIVE, NATIVE_BYTES = "avx512bf16", "avx512vnni"


class _BFloat16(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat16 type, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


def number(value: int) -> Any:
    """A 64-bit integer constant in LLVM."""
    return ir.Constant(INT64, value)


def pointer(builder: Any, address: Any, kind: Any) -> Any:
    """An address as a pointer to `kind`."""
    return builder.inttoptr(address, kind.as_pointer())


def load(builder: Any, kind: Any, base: Any, offset: Any) -> Any:
    """Load sixteen elements from `base + offset`. kind: FLOATS or PAIRS."""
    loaded = builder.load(builder.bitcast(builder.gep(base, [offset]), kind.as_pointer()))
    loaded.align = 4
    return loaded


def store(builder: Any, values: Any, base: Any, offset: Any) -> None:
    """Write sixteen floats to `base + offset`."""
    stored = builder.store(values, builder.bitcast(builder.gep(base, [offset]), FLOATS.as_pointer()))
    stored.align = 4


def load_everywhere(builder: Any, base: Any, offset: Any) -> Any:
    """Load the number or pair at `base + offset` into all sixteen elements."""
    one = builder.load(builder.gep(base, [offset]))
    undefined = ir.Constant(ir.VectorType(one.type, LANES), ir.Undefined)
    first = builder.insert_element(undefined, one, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(PAIRS, [0] * LANES))


def add_products(builder: Any, sums: Any, a: Any, b: Any) -> Any:
    """sums + a.first * b.first + a.second * b.second, in float32, for sixteen pairs.

    It is one instruction on processors that have it. Others take two, which treat a bfloat16 as the upper half of a
    float32; their results may differ in the last bit.
    """
    if binding.get_host_cpu_features().get(NATIVE):
        halves = ir.VectorType(_BFloat16(), 2 * LANES)
        kind = ir.FunctionType(FLOATS, [FLOATS, halves, halves])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{NATIVE}.dpbf16ps.512")
        return builder.call(function, [sums, builder.bitcast(a, halves), builder.bitcast(b, halves)])
    kind = ir.FunctionType(FLOATS, [FLOATS, FLOATS, FLOATS])
    multiply_add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")

    def first(pairs: Any) -> Any:
        return builder.bitcast(builder.shl(pairs, ir.Constant(PAIRS, [16] * LANES)), FLOATS)

    def second(pairs: Any) -> Any:
        return builder.bitcast(builder.and_(pairs, ir.Constant(PAIRS, [0xFFFF0000] * LANES)), FLOATS)

    return builder.call(multiply_add, [second(a), second(b), builder.call(multiply_add, [first(a), first(b), sums])])


def add_byte_products(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """sums + the products of four unsigned and four signed bytes, for each of sixteen integers; exact."""
    if binding.get_host_cpu_features().get(NATIVE_BYTES):
        kind = ir.FunctionType(PAIRS, [PAIRS, PAIRS, PAIRS])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        return builder.call(function, [sums, unsigned, signed])
    top, byte = (ir.Constant(PAIRS, [value] * LANES) for value in (24, 0xFF))
    for at in range(4):
        down, up = (ir.Constant(PAIRS, [value] * LANES) for value in (8 * at, 24 - 8 * at))
        a = builder.and_(builder.lshr(unsigned, down), byte)
        b = builder.ashr(builder.shl(signed, up), top)
        sums = builder.add(sums, builder.mul(a, b))
    return sums


def expect(builder: Any, base: Any, offset: Any, *, write: bool = False) -> None:
    """Prefetch the cache line at `base + offset`, which is read or written later.

    The processor prefetches long runs by itself, but not the heads in a page of keys and values, nor lines that another
    core holds and this one will write.
    """
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), INT32, INT32, INT32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    place = builder.bitcast(builder.gep(base, [offset]), ir.IntType(8).as_pointer())
    builder.call(function, [place, *(ir.Constant(INT32, value) for value in (int(write), 3, 1))])


@intrinsic
def expect_bytes(typing_context: Any, address: Any, size: Any) -> Any:
    """Prefetch `size` bytes at an address, which are read later."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, size = arguments
        with cgutils.for_range(builder, builder.sdiv(size, number(LINE_BYTES))) as loop:
            base = pointer(builder, address, ir.IntType(8))
            expect(builder, base, builder.mul(loop.index, number(LINE_BYTES)))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


def registers(builder: Any, count: int, zeros: Any = ZEROS) -> list[Any]:
    """Variables of sixteen numbers, initially zero, to which a loop adds."""
    variables = [cgutils.alloca_once(builder, zeros.type) for _ in range(count)]
    for register in variables:
        builder.store(zeros, register)
    return variables


@intrinsic
def bits_of(typing_context: Any, value: Any) -> Any:
    """The bits of a float32 as uint32."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], INT32)

    return types.uint32(types.float32), code


@intrinsic
def float_of(typing_context: Any, bits: Any) -> Any:
    """The float32 whose bits are this uint32."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], FLOAT)

    return types.float32(types.uint32), code
