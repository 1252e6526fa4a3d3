"""Counts the bytes that are requested from Python's allocators.

A hook wraps the allocators of the domains MEM and OBJ (PEP 445), from which every Python object and most buffers of C
extensions come. The hook is machine code, compiled from a few lines of LLVM's language, because a hook in Python would
itself allocate. Callers of these domains hold the interpreter lock, so the sum needs no lock. The domain RAW, `malloc`
of C libraries (the storage of tensors) and objects from a free list are not counted.
"""

from __future__ import annotations

import contextlib
import ctypes
from array import array
from collections.abc import Iterator

from llvmlite import binding

MEM, OBJ = 1, 2
"""Two of CPython's `PyMemAllocatorDomain`."""
COUNTS, BYTES, CONTEXT, MALLOC, CALLOC, REALLOC, FREE, WORDS = range(8)
"""Positions in a hook's words: 1 while the hook counts, the sum, and the wrapped allocator."""
_COUNTED = """
define private void @note(ptr %hook, i64 %size) alwaysinline {
  %counts = load i64, ptr %hook
  %counted = mul i64 %size, %counts
  %place = getelementptr i64, ptr %hook, i64 1
  %before = load i64, ptr %place
  %after = add i64 %before, %counted
  store i64 %after, ptr %place
  ret void
}
define ptr @malloc_counted(ptr %hook, i64 %size) {
  call void @note(ptr %hook, i64 %size)
  %context_at = getelementptr ptr, ptr %hook, i64 2
  %context = load ptr, ptr %context_at
  %function_at = getelementptr ptr, ptr %hook, i64 3
  %function = load ptr, ptr %function_at
  %block = call ptr %function(ptr %context, i64 %size)
  ret ptr %block
}
define ptr @calloc_counted(ptr %hook, i64 %number, i64 %each) {
  %size = mul i64 %number, %each
  call void @note(ptr %hook, i64 %size)
  %context_at = getelementptr ptr, ptr %hook, i64 2
  %context = load ptr, ptr %context_at
  %function_at = getelementptr ptr, ptr %hook, i64 4
  %function = load ptr, ptr %function_at
  %block = call ptr %function(ptr %context, i64 %number, i64 %each)
  ret ptr %block
}
define ptr @realloc_counted(ptr %hook, ptr %old, i64 %size) {
  call void @note(ptr %hook, i64 %size)
  %context_at = getelementptr ptr, ptr %hook, i64 2
  %context = load ptr, ptr %context_at
  %function_at = getelementptr ptr, ptr %hook, i64 5
  %function = load ptr, ptr %function_at
  %block = call ptr %function(ptr %context, ptr %old, i64 %size)
  ret ptr %block
}
define void @free_passed_on(ptr %hook, ptr %block) {
  %context_at = getelementptr ptr, ptr %hook, i64 2
  %context = load ptr, ptr %context_at
  %function_at = getelementptr ptr, ptr %hook, i64 6
  %function = load ptr, ptr %function_at
  call void %function(ptr %context, ptr %block)
  ret void
}
"""


class _Allocator(ctypes.Structure):
    """The C API's `PyMemAllocatorEx`."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


class AllocatedBytes:
    """The bytes requested while `count` was on, within `hooked`."""

    def __init__(self) -> None:
        self._hooks = {domain: array("q", bytes(8 * WORDS)) for domain in (MEM, OBJ)}

    def count(self, on: bool) -> None:
        """Switch counting, without an allocation."""
        for hook in self._hooks.values():
            hook[COUNTS] = on

    @property
    def total(self) -> int:
        return sum(hook[BYTES] for hook in self._hooks.values())

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Wrap the allocators. Blocks may outlive the hook, because the allocators own them."""
        engine = _compiled()
        functions = [engine.get_function_address(f"{name}_counted") for name in ("malloc", "calloc", "realloc")]
        functions.append(engine.get_function_address("free_passed_on"))
        wrapped = {}
        for domain, hook in self._hooks.items():
            wrapped[domain] = allocator = _Allocator()
            ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(allocator))
            for at, value in enumerate((allocator.context, allocator.malloc, allocator.calloc)):
                hook[CONTEXT + at] = value or 0
            hook[REALLOC], hook[FREE] = allocator.realloc, allocator.free
            ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(_Allocator(hook.buffer_info()[0], *functions)))
        try:
            yield
        finally:
            for domain, allocator in wrapped.items():
                ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(allocator))
            engine.close()


def _compiled() -> binding.ExecutionEngine:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(_COUNTED)
    machine = binding.Target.from_default_triple().create_target_machine(opt=2)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
