"""Several threads that run one kernel together.

A kernel is a sequence of phases, and a phase is a number of units that may be computed in any order: some columns of a
matrix, some rows, a head. A thread takes the next unit of the phase as soon as all units of the phases before are done.
Who computes a unit does not change its numbers, so results are equal bit by bit on any number of threads.

The caller computes whatever no other thread takes. A thread that the system has suspended, or that sleeps, therefore
delays the others by no more than the unit that it holds. Threads wait for the next kernel inside a compiled loop, which
needs no interpreter lock, and sleep after a millisecond or two without work: waking takes as long as a layer.

All threads read one board of counters, which only grow. A thread that comes late finds its phases done, and reads
nothing else.
"""

from __future__ import annotations

import queue
import threading
import weakref
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from engines.layers.native.compiled import Kernel, cached, compiled
from engines.layers.native.vectors import INT32, INT64, number, pointer

LOOKS = 400
"""Reads of a counter before the thread yields the processor between reads."""
PATIENCE = 4_000
"""Reads of the board without new work after which a thread sleeps: one or two milliseconds."""
UNITS = 1
"""Units for each thread in a phase: taking one costs 150 ns where another thread took the last, and a phase of one row
takes a few microseconds."""
LINE = 8
"""Integers in a line of the processor's cache."""
TAKEN, DONE = 0, 8
CALLS, KERNEL, GIVEN = (8 * LINE * at for at in range(1, 4))
SIZE = KERNEL + 8
"""Offsets on the board in bytes. The first two share a line, which moves between cores. CALLS is odd while a caller
writes what follows: a kernel's address, and its arguments with their size."""
MAX_GIVEN = 8_192
"""Bytes of arguments."""
CLOSED = -1


class Team:
    """`parts` threads, the caller's included."""

    def __init__(self, parts: int = 1) -> None:
        self.parts = parts
        self._memory = np.zeros((GIVEN + MAX_GIVEN + 8 * LINE) // 8, np.int64)
        start = -(-self._memory.ctypes.data // (8 * LINE)) * 8 * LINE
        self.board = start
        """The board's address; valid as long as this object."""
        self._beds: list[queue.SimpleQueue[None]] = []
        for part in range(1, parts):
            bed: queue.SimpleQueue[None] = queue.SimpleQueue()
            self._beds.append(bed)
            # the memory, not the team: the threads end with the team
            work = threading.Thread(target=_work, args=(part, start, self._memory, bed), name=f"kernels {part}")
            work.daemon = True
            work.start()
        weakref.finalize(self, _close, self._memory, start, self._beds)

    def wake(self) -> None:
        """Call it before a kernel. Threads that are awake ignore it."""
        for bed in self._beds:
            if bed.empty():
                bed.put(None)


def _work(part: int, board: int, memory: Any, bed: queue.SimpleQueue[None]) -> None:
    serve = cached(_serve)
    calls = 0
    while (calls := serve(board, part, calls)) != CLOSED:
        bed.get()
    del memory


def _close(memory: Any, board: int, beds: list[queue.SimpleQueue[None]]) -> None:
    memory[(board + CALLS - memory.ctypes.data) // 8] = CLOSED
    for bed in beds:
        bed.put(None)


@intrinsic
def _look(typing_context: Any, address: Any) -> Any:
    """Read an integer (acquire)."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(pointer(builder, arguments[0], INT64), "acquire", 8)

    return types.int64(types.int64), code


@intrinsic
def _add(typing_context: Any, address: Any) -> Any:
    """Add one to an integer."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.atomic_rmw("add", pointer(builder, arguments[0], INT64), number(1), "acq_rel")
        return context.get_dummy_value()

    return types.void(types.int64), code


@intrinsic
def _replace(typing_context: Any, address: Any, before: Any, after: Any) -> Any:
    """Write `after` if the integer is `before`; returns 1 if it was."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, before, after = arguments
        result = builder.cmpxchg(pointer(builder, address, INT64), before, after, "acq_rel", "acquire")
        return builder.zext(builder.extract_value(result, 1), INT64)

    return types.int64(types.int64, types.int64, types.int64), code


@intrinsic
def _give_way(typing_context: Any) -> Any:
    """Yield the processor to another thread."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(INT32, []), "sched_yield")
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), code


@compiled
def reach(board: int, first: int) -> None:
    """Wait until all units before `first` are done."""
    looks = 0
    while _look(board + DONE) < first:
        looks += 1
        if looks > LOOKS:
            _give_way()


@compiled
def _take(board: int, first: int, units: int) -> Any:
    while True:
        taken = _look(board + TAKEN)
        if taken >= first + units:
            return -1
        if _replace(board + TAKEN, taken, taken + 1):
            return taken - first


@compiled
def enter(board: int, first: int, units: int) -> Any:
    """Wait until a phase begins, and take one of its units; -1: all are taken. first: the phase's first unit, counted
    over all phases."""
    reach(board, first)
    return _take(board, first, units)


@compiled
def go_on(board: int, first: int, units: int) -> Any:
    """The unit taken is done: take the next one of the phase, or -1."""
    _add(board + DONE)
    return _take(board, first, units)


@compiled
def units_of(count: int, parts: int) -> Any:
    """Number of units into which `count` equal things are divided."""
    return 1 if parts == 1 else min(count, UNITS * parts)


@compiled
def bounds(unit: int, units: int, count: int) -> Any:
    """Start and stop of a unit's things."""
    return count * unit // units, count * (unit + 1) // units


def announcing(kernel: Any) -> Kernel:
    """The function that offers a kernel to a team's other threads: (board, first unit, parts, arguments as a tuple).

    kernel: (board, first unit, parts, part, *arguments) -> the unit after the last; part: a thread's number, for
    scratch memory. It may read the memory of an argument only within a unit: a late thread comes when it is gone.
    """

    @intrinsic
    def announce(typing_context: Any, board: Any, first: Any, parts: Any, given: Any) -> Any:
        kind = typing_context.resolve_value_type(kernel)
        inner = kind.get_call_type(typing_context, (types.int64,) * 4 + tuple(given.types), {})

        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            board, first, parts, packed = arguments
            values = [
                _borrowed(context, builder, kind, builder.extract_value(packed, at))
                for at, kind in enumerate(given.types)
            ]
            words = [first, parts, *values]
            layout = ir.LiteralStructType([word.type for word in words])
            size = context.get_abi_sizeof(layout)
            assert size <= MAX_GIVEN
            member = [[ir.Constant(INT32, 0), ir.Constant(INT32, at)] for at in range(len(words))]

            compiled_kernel = kernel.get_compile_result(inner)
            context.active_code_library.add_linking_library(compiled_kernel.library)
            name = builder.module.get_unique_name("part")
            body = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [INT64] * 3), name)
            body.linkage = "internal"
            own = ir.IRBuilder(body.append_basic_block())
            address, part, place = body.args
            read = [own.load(own.gep(pointer(own, place, layout), at)) for at in member]
            call = address, read[0], read[1], part, *read[2:]
            context.call_internal_no_propagate(own, compiled_kernel.fndesc, inner, call)
            own.ret_void()

            builder.atomic_rmw("add", _at(builder, board, CALLS), number(1), "acq_rel")
            builder.store(builder.ptrtoint(body, INT64), _at(builder, board, KERNEL))
            builder.store(number(size), _at(builder, board, SIZE))
            target = pointer(builder, builder.add(board, number(GIVEN)), layout)
            for at, word in zip(member, words, strict=True):
                builder.store(word, builder.gep(target, at))
            builder.atomic_rmw("add", _at(builder, board, CALLS), number(1), "acq_rel")
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, given), code

    made: Kernel = announce
    return made


@compiled
def begin(board: int) -> Any:
    """The first unit of a new kernel."""
    return _look(board + DONE)


def _at(builder: Any, board: Any, offset: int) -> Any:
    return pointer(builder, builder.add(board, number(offset)), INT64)


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """An array without its count of references, which may be gone when a late thread counts."""
    if not isinstance(kind, types.Array):
        return value
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = cgutils.get_null_value(array.meminfo.type)
    array.parent = cgutils.get_null_value(array.parent.type)
    return array._getvalue()


@intrinsic
def _join(typing_context: Any, board: Any, part: Any, calls: Any) -> Any:
    """Run this thread's part of the announced kernel, unless another one has been announced since `calls`."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        board, part, calls = arguments
        own = cgutils.alloca_once(builder, ir.ArrayType(INT64, MAX_GIVEN // 8))
        kernel = builder.load(_at(builder, board, KERNEL))
        place = builder.ptrtoint(own, INT64)
        cgutils.raw_memcpy(
            builder, builder.bitcast(own, ir.IntType(8).as_pointer()),
            pointer(builder, builder.add(board, number(GIVEN)), ir.IntType(8)),
            builder.load(_at(builder, board, SIZE)), 1,
        )  # fmt: skip
        builder.fence("acquire")
        now = builder.load_atomic(_at(builder, board, CALLS), "acquire", 8)
        with builder.if_then(builder.icmp_signed("==", now, calls)):
            kind = ir.FunctionType(ir.VoidType(), [INT64, INT64, INT64])
            builder.call(builder.inttoptr(kernel, kind.as_pointer()), [board, part, place])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@compiled
def _serve(board: int, part: int, calls: int) -> Any:
    """Run parts of kernels until there has been none for a while; returns the last call, or `CLOSED`."""
    looks = 0
    while looks < PATIENCE:
        now = _look(board + CALLS)
        if now == CLOSED:
            return CLOSED
        if now != calls and now % 2 == 0:
            _join(board, part, now)
            calls, looks = now, 0
        looks += 1
        if looks > LOOKS:
            _give_way()
    return calls
