"""Reads the texts that calibration and sensitivity are measured over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import ConfigError, RequestError
from engines.tokenizer.tokenizer import Tokenizer


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str | None = None
    messages: list[dict[str, Any]] | None = None


def read_passages(path: Path, tokenizer: Tokenizer, window_tokens: int, most_tokens: int) -> list[list[int]]:
    """Token ids, at most `window_tokens` each and about `most_tokens` in all.

    A `.jsonl` file has `{"text": …}` or `{"messages": […]}` per line, each a passage of its own, conversations by the
    model's template; any other file is one text, cut. Raises ConfigError naming the file and the line.
    """
    passages: list[list[int]] = []
    total = 0
    for ids in _texts(path, tokenizer):
        for start in range(0, len(ids), window_tokens):
            passage = ids[start : start + window_tokens]
            if len(passage) > 1:
                passages.append(passage)
                total += len(passage)
            if total >= most_tokens:
                return passages
    if not passages:
        raise ConfigError(f"{path}: no text in it")
    return passages


def _texts(path: Path, tokenizer: Tokenizer) -> list[list[int]]:
    try:
        content = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if path.suffix != ".jsonl":
        return [tokenizer.encode(content)]
    found: list[list[int]] = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = msgspec.json.decode(line, type=_Line)
            if (entry.text is None) == (entry.messages is None):
                raise ConfigError(f"{path}, line {number}: needs either text or messages")
            found.append(
                tokenizer.encode(entry.text) if entry.text is not None else tokenizer.chat_ids(entry.messages or [])
            )
        except (msgspec.DecodeError, RequestError) as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
    return found
