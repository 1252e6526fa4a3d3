"""Reads the texts that calibration and sensitivity are measured over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import ConfigError, RequestError
from engines.tokenizer.tokenizer import Tokenizer


class Passage(msgspec.Struct, frozen=True):
    """A window of a text, as token ids."""

    ids: list[int]
    start: int = 0
    """The first position whose next token counts; the earlier ones only precede it."""


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str | None = None
    messages: list[dict[str, Any]] | None = None


def read_passages(path: Path, tokenizer: Tokenizer, window_tokens: int, most_tokens: int) -> list[Passage]:
    """Passages of at most `window_tokens` each and about `most_tokens` in all.

    A `.jsonl` file has `{"text": …}` or `{"messages": […]}` per line, each a text of its own; any other file is one
    text. Of a conversation, written by the model's template, what counts is the last answer: what users write is
    nothing that a chat model was trained to say. Raises ConfigError naming the file and the line.
    """
    passages: list[Passage] = []
    total = 0
    for text in _texts(path, tokenizer):
        for at in range(0, len(text.ids), window_tokens):
            ids, start = text.ids[at : at + window_tokens], max(text.start - at, 0)
            if start < len(ids) - 1:
                passages.append(Passage(ids, start))
                total += len(ids)
            if total >= most_tokens:
                return passages
    if not passages:
        raise ConfigError(
            f"{path}: it holds nothing to measure: a text must have two tokens or more, as must a conversation's answer"
        )
    return passages


def _texts(path: Path, tokenizer: Tokenizer) -> list[Passage]:
    try:
        content = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if path.suffix != ".jsonl":
        return [Passage(tokenizer.encode(content))]
    found: list[Passage] = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(_text(msgspec.json.decode(line, type=_Line), tokenizer))
        except (msgspec.DecodeError, RequestError, ValueError) as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
    return found


def _text(line: _Line, tokenizer: Tokenizer) -> Passage:
    if (line.text is None) == (line.messages is None):
        raise ValueError("needs either text or messages")
    if line.text is not None:
        return Passage(tokenizer.encode(line.text))
    messages = line.messages or []
    ids = tokenizer.chat_ids(messages)
    if len(messages) < 2 or messages[-1].get("role") != "assistant":
        raise ValueError("messages must end with an assistant's answer")
    asked = tokenizer.chat_ids(messages[:-1])
    # both open a further turn of the assistant at their end; the whole text's is no part of the answer
    opened = 0
    while opened < len(asked) and ids[-1 - opened] == asked[-1 - opened]:
        opened += 1
    return Passage(ids[: len(ids) - opened] if opened else ids, len(asked) - 1)
