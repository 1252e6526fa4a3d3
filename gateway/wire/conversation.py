"""Identifies a conversation that the client does not name, by its beginning.

A client sends the whole conversation with every turn, and the whole document with every continuation, so the beginning
stays the same while the text grows.
"""

from __future__ import annotations

import msgspec

from contracts.generation import ChatPrompt, TextPrompt
from gateway.wire.digest import digest_of

HEAD = 1_024
"""Characters or token ids that count as a text's beginning. A shorter text changes its identity with every word."""


def conversation_of(prompt: ChatPrompt | TextPrompt, file: bytes) -> str:
    """A digest of a conversation up to its first user message, of a gap's file, or of a text's beginning. file: see
    `file_identity`; empty without a gap or an identity."""
    if file:
        return file.hex()
    if isinstance(prompt, ChatPrompt):
        turns = prompt.messages
        first = next((at for at, turn in enumerate(turns) if turn.get("role") == "user"), len(turns) - 1)
        return digest_of([msgspec.json.encode(turns[: first + 1]).decode()]).hex()
    text = prompt.prompts[0][:HEAD] if prompt.prompts else ""
    return digest_of([text if isinstance(text, str) else ",".join(map(str, text))]).hex()
