"""The tokenizers of the shipped models."""

from __future__ import annotations

import pytest

from engines.tokenizer.tokenizer import Tokenizer
from tests.gateway.wire.openai.preparing import MODELS


@pytest.fixture(scope="module")
def chat_tokenizer() -> Tokenizer:
    """With a chat template and control tokens `<|end|>`, `<|user|>`."""
    return Tokenizer.load(MODELS / "slipstream-chat")


@pytest.fixture(scope="module")
def code_tokenizer() -> Tokenizer:
    """With tokens for filling gaps."""
    return Tokenizer.load(MODELS / "slipstream-code")
