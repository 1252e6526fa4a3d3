"""Several threads that run one kernel together.

A kernel is a sequence of phases, and a phase consists of units that may be computed in any order, such as some columns
of a matrix, some rows or a head. A thread takes the next unit of a phase as soon as all units of earlier phases are
done. A unit's numbers do not depend on its thread, so results have the same bits with any number of threads.

The caller computes the units that no other thread takes. A suspended or sleeping thread therefore delays the others by
no more than the unit that it holds. Threads wait for the next kernel in a compiled loop without the interpreter lock.
Because waking takes as long as a layer, they sleep only after one or two milliseconds without work.

All threads share one board of counters, which only grow. A late thread finds its phases done and reads nothing else.
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
"""Reads of a counter after which a thread yields the processor between reads."""
PATIENCE = 4_000
"""Reads of the board without new work, one or two milliseconds in all, after which a thread sleeps."""
UNITS = 1
"""Units per thread in a phase. Taking a unit costs 150 ns if another thread took the last one, and a phase of one row
takes a few microseconds."""
LINE = 8
"""Integers in a line of the processor's cache."""
TAKEN, DONE = 0, 8
CALLS, KERNEL, GIVEN = (8 * LINE * at for at in range(1, 4))
SIZE = KERNEL + 8
"""Offsets on the board in bytes. TAKEN and DONE share a line, which moves between cores. CALLS is odd while a caller
writes the rest: a kernel's address, and its arguments with their size."""
MAX_GIVEN = 8_192
"""Limit of a kernel's arguments in bytes."""
CLOSED = -1


class Team:
    """`parts` threads, including the caller's."""

    def __init__(self, parts: int = 1) -> None:
        self.parts = parts
        self._memory = np.zeros((GIVEN + MAX_GIVEN + 8 * LINE) // 8, np.int64)
        start = -(-self._memory.ctypes.data // (8 * LINE)) * 8 * LINE
        self.board = start
        """The board's address, valid as long as this object exists."""
        self._wakeups: list[queue.SimpleQueue[None]] = []
        for part in range(1, parts):
            wakeup: queue.SimpleQueue[None] = queue.SimpleQueue()
            self._wakeups.append(wakeup)
            # pass the memory and not the team, so that the threads end with the team
            work = threading.Thread(target=_work, args=(part, start, self._memory, wakeup), name=f"kernels {part}")
            work.daemon = True
            work.start()
        weakref.finalize(self, _close, self._memory, start, self._wakeups)

    def wake(self) -> None:
        """Wake sleeping threads; call this before each kernel."""
        for wakeup in self._wakeups:
            if wakeup.empty():
                wakeup.put(None)


def _work(part: int, board: int, memory: Any, wakeup: queue.SimpleQueue[None]) -> None:
    serve = cached(_serve)
    calls = 0
    while (calls := serve(board, part, calls)) != CLOSED:
        wakeup.get()
    del memory


def _close(memory: Any, board: int, wakeups: list[queue.SimpleQueue[None]]) -> None:
    memory[(board + CALLS - memory.ctypes.data) // 8] = CLOSED
    for wakeup in wakeups:
        wakeup.put(None)


@intrinsic
def _look(typing_context: Any, address: Any) -> Any:
    """Read an integer with acquire order."""

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
    """Write `after` if the integer is `before`; return 1 if it was."""

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
    """Wait until a phase begins and take one of its units; -1 if all are taken. first: the phase's first unit, counted
    over all phases."""
    reach(board, first)
    return _take(board, first, units)


@compiled
def go_on(board: int, first: int, units: int) -> Any:
    """Record that the taken unit is done, and take the next unit of the phase; -1 if all are taken."""
    _add(board + DONE)
    return _take(board, first, units)


@compiled
def units_of(count: int, parts: int) -> Any:
    """Number of units into which `count` equal items are divided."""
    return 1 if parts == 1 else min(count, UNITS * parts)


@compiled
def bounds(unit: int, units: int, count: int) -> Any:
    """Start and stop of a unit's items."""
    return count * unit // units, count * (unit + 1) // units


def announcing(kernel: Any) -> Kernel:
    """Make the function that offers a kernel to a team's other threads: (board, first unit, parts, tuple of arguments).

    kernel: (board, first unit, parts, part, *arguments) -> the unit after the last; part: a thread's number, for
    scratch memory. A kernel may read an argument's memory only within a unit: it may be freed before a late thread
    runs.
    """

    @intrinsic
    def announce(typing_context: Any, board: Any, first: Any, parts: Any, packed_type: Any) -> Any:
        kind = typing_context.resolve_value_type(kernel)
        inner = kind.get_call_type(typing_context, (types.int64,) * 4 + tuple(packed_type.types), {})

        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            board, first, parts, packed = arguments
            values = [
                _borrowed(context, builder, kind, builder.extract_value(packed, at))
                for at, kind in enumerate(packed_type.types)
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

        return types.void(types.int64, types.int64, types.int64, packed_type), code

    announcer: Kernel = announce
    return announcer


@compiled
def begin(board: int) -> Any:
    """Return the first unit of a new kernel."""
    return _look(board + DONE)


def _at(builder: Any, board: Any, offset: int) -> Any:
    return pointer(builder, builder.add(board, number(offset)), INT64)


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """An array without its reference count, which may be freed before a late thread would change it."""
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
    """Run parts of kernels until none has come for a while; return the last call, or `CLOSED`."""
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
