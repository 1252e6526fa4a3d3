"""Tokenizes without blocking the event loop: short and known prompts at once, others in a thread, tenant by tenant in
turn.

A thread helps because `Tokenizer` encodes without the interpreter lock, and otherwise holds it for only some ten
milliseconds at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from contracts.engine_parameters import TemplateValue
from contracts.errors import InvalidField
from engines.tokenizer.fair_executor import FairExecutor, ours
from engines.tokenizer.json_value import size_up_to
from engines.tokenizer.segment_cache import LoopAllowance, NeedsThread
from engines.tokenizer.sound import require_sound
from engines.tokenizer.template import Check
from engines.tokenizer.tokenizer import Tokenizer

JsonObject = dict[str, Any]
INLINE_BYTES = 4_096
"""Size up to which a thread hop costs more than the work, which takes about a millisecond."""
KNOWN_CONVERSATION_BYTES = 131_072
"""The same for a conversation of which at most `INLINE_BYTES` are new: the rest is only rendered and looked up."""
KNOWN_TEXT_BYTES = 32_768
"""The same for texts, whose ids become lists, which takes longer."""
VALUE_BYTES = 128
"""The size of each value, in addition to its text, in a known prompt: many short messages take longer than one long
message."""
ResultT = TypeVar("ResultT")


class OffLoopTokenizer:
    """The asynchronous interface of a `Tokenizer`, with the same guarantees and the errors of `FairExecutor.run`."""

    def __init__(self, tokenizer: Tokenizer, executor: FairExecutor | None = None) -> None:
        """executor: shared by all models of a process; None makes a new one."""
        self.tokenizer = tokenizer
        self._executor = executor or FairExecutor()
        self._owns_executor = executor is None

    async def encode(self, text: str, limit_tokens: int | None = None, tenant: str = "") -> list[int]:
        return await self.run(tenant, text, lambda: self.tokenizer.encode(text, limit_tokens))

    async def chat_ids(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject] | None = None,
        limit_tokens: int | None = None,
        tenant: str = "",
        variables: Mapping[str, TemplateValue] | None = None,
        check: Check | None = None,
    ) -> Sequence[int]:
        return await self.run_known(
            tenant,
            (messages, tools),
            lambda allowance: self.tokenizer.chat_ids(
                messages, tools, limit_tokens, check, variables, tenant, allowance
            ),
            KNOWN_CONVERSATION_BYTES,
        )

    async def fill_ids(self, prefix: str, suffix: str, limit_tokens: int | None = None, tenant: str = "") -> list[int]:
        return await self.run(tenant, (prefix, suffix), lambda: self.tokenizer.fill_ids(prefix, suffix, limit_tokens))

    async def run(self, tenant: str, prompt: Any, work: Callable[[], ResultT]) -> ResultT:
        """The result of `work`. tenant: the organization whose turn the work takes. prompt: the whole input of the
        work, which decides where it runs and how much it counts."""
        if size_up_to(prompt, INLINE_BYTES) <= INLINE_BYTES:
            return ours(work)
        return await self._executor.run(tenant, _size_bytes(prompt), work)

    async def run_known(
        self,
        tenant: str,
        prompt: Any,
        work: Callable[[LoopAllowance | None], ResultT],
        most_bytes: int = KNOWN_TEXT_BYTES,
    ) -> ResultT:
        """Like `run`, but a prompt that the tenant has sent before, except for some of it, needs no thread. work: takes
        an allowance on the event loop, and raises NeedsThread above it. most_bytes: limit of a known prompt."""
        if size_up_to(prompt, INLINE_BYTES) <= INLINE_BYTES:
            return ours(partial(work, None))
        if tenant and size_up_to(prompt, most_bytes, VALUE_BYTES) <= most_bytes:
            known = ours(partial(_if_known, work))
            if known is not None:
                return known
        return await self._executor.run(tenant, _size_bytes(prompt), partial(work, None))

    def close(self) -> None:
        """Stop the threads, if this object made them."""
        if self._owns_executor:
            self._executor.close()


def _if_known(work: Callable[[LoopAllowance | None], ResultT]) -> ResultT | None:
    """The result, or None if it needs a thread."""
    try:
        return work(LoopAllowance(INLINE_BYTES))
    except NeedsThread:
        return None


def _size_bytes(prompt: Any) -> int:
    """Size as JSON, which is the prompt's form on arrival; texts are not copied to measure them."""
    if isinstance(prompt, str):
        return require_sound(prompt)
    if isinstance(prompt, list) and all(isinstance(text, str) for text in prompt):
        return sum(map(require_sound, prompt))
    try:
        return len(msgspec.json.encode(prompt))
    except (UnicodeEncodeError, RecursionError):
        raise InvalidField("The prompt holds an unpaired surrogate, or is nested too deeply.") from None
