"""The program in an answer: what a model puts around code, and what it leaves away."""

from __future__ import annotations

import re

_FENCE = re.compile(r"```[ \t]*(?:python3?|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)


def program(answer: str, entry_point: str, prompt: str = "") -> tuple[str, ...]:
    """Parts to run one after the other.

    The code block that defines the function, else the longest, else the whole answer. prompt: code that the answer
    goes on from; run before it for its imports and helpers, or, where the answer is a body alone, in front of it.
    """
    blocks = [block for block in _FENCE.findall(answer) if block.strip()]
    defines = re.compile(rf"^\s*(?:async\s+)?def\s+{re.escape(entry_point)}\s*\(", re.MULTILINE)
    defining = [block for block in blocks if defines.search(block)]
    code = defining[0] if defining else max(blocks, key=len) if blocks else answer
    if not prompt:
        return (code,)
    return (prompt, code) if defines.search(code) else (prompt + code,)
