"""Tokenizes without holding up the event loop: short texts at once, long ones in a thread.

`tokenizers` releases the interpreter lock; 12 kB take 2 to 4 ms, which every stream of the process would feel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from engines.tokenizer.tokenizer import Tokenizer

JsonObject = dict[str, Any]
INLINE_CHARACTERS = 4_096
"""Below this a hop to a thread costs more than the work."""
ResultT = TypeVar("ResultT")


class OffLoopTokenizer:
    """The asynchronous face of a `Tokenizer`; same promises and errors."""

    def __init__(self, tokenizer: Tokenizer, executor: ThreadPoolExecutor | None = None) -> None:
        """executor: shared by all models of a process; None makes one thread of its own."""
        self.tokenizer = tokenizer
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="tokenizer")
        self._owns_executor = executor is None

    async def encode(self, text: str) -> list[int]:
        """See `Tokenizer.encode`."""
        return await self._run(len(text), lambda: self.tokenizer.encode(text))

    async def count(self, text: str) -> int:
        """See `Tokenizer.count`."""
        return await self._run(len(text), lambda: self.tokenizer.count(text))

    async def chat_ids(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None = None) -> list[int]:
        """See `Tokenizer.chat_ids`."""
        return await self._run(_size(messages) + _size(tools), lambda: self.tokenizer.chat_ids(messages, tools))

    async def fill_ids(self, prefix: str, suffix: str) -> list[int]:
        """See `Tokenizer.fill_ids`."""
        return await self._run(len(prefix) + len(suffix), lambda: self.tokenizer.fill_ids(prefix, suffix))

    def close(self) -> None:
        """Stop the thread, if it is our own."""
        if self._owns_executor:
            self._executor.shutdown(wait=False)

    async def _run(self, size: int, work: Callable[[], ResultT]) -> ResultT:
        if size < INLINE_CHARACTERS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _size(value: Any) -> int:
    """Characters in a JSON value, roughly."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _size(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return sum(_size(inner) for inner in value)
    return 0
