"""Counts tokens as a model does, from the `tokenizer.json` in its folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tokenizers import Tokenizer

from contracts.errors import ConfigError


class FolderTokenizer:
    """The tokenizer of a model's folder."""

    def __init__(self, folder: Path) -> None:
        """folder: of the model. Raises ConfigError where it holds no tokenizer."""
        file = folder / "tokenizer.json"
        try:
            data = file.read_bytes()
            self._tokenizer = Tokenizer.from_str(data.decode())
        except Exception as error:  # the library raises Exception itself
            raise ConfigError(f"{file}: no tokenizer can be read there ({error}); name a model's folder") from error
        self._digest = hashlib.sha256(data).hexdigest()[:16]

    @property
    def digest(self) -> str:
        """Of the tokenizer's file."""
        return self._digest

    def __call__(self, text: str) -> int:
        """Tokens of a text, without those that begin or end a prompt."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)
