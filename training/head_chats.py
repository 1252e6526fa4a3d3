"""The chats that a draft head of the chat model learns from: every slice alike, training side only."""

from __future__ import annotations

from pathlib import Path

from evals.slices.registry import SLICES
from training.chat_source import ChatCoder, ChatSource
from training.windows import WindowSource


def chats(model: Path, seed: int) -> WindowSource:
    """Windows of program-generated conversations for the tokenizer in the model's folder."""
    return ChatSource(ChatCoder(model), dict.fromkeys(SLICES, 1.0), seed)
