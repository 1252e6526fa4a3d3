"""Reads the texts for calibration and sensitivity."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import ConfigError, RequestError
from engines.tokenizer.tokenizer import Tokenizer

Message = Mapping[str, Any]
"""A message of OpenAI's chat API."""


class Passage(msgspec.Struct, frozen=True):
    """A window of a text, as token ids."""

    ids: list[int]
    start: int = 0
    """The first position whose next token counts; the earlier ones are only context."""
    text: int = 0
    """Number of its source text: passages of one text are not independent."""


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str | None = None
    messages: list[dict[str, Any]] | None = None


def read_passages(path: Path, tokenizer: Tokenizer, window_tokens: int, most_tokens: int) -> list[Passage]:
    """Passages of at most `window_tokens` each and about `most_tokens` in all.

    A `.jsonl` file has `{"text": …}` or `{"messages": […]}` per line, each a text of its own; any other file is one
    text; of a folder, each of its Python files is one, in the order of their paths. Of a conversation, rendered by the
    model's template, only the last response counts: a chat model was not trained to write users' messages. A single
    text's passages are numbered as separate texts, because nothing else shows the variance among texts. Raises
    ConfigError that names the file and the line.
    """
    texts = list(_texts(path, tokenizer))
    passages: list[Passage] = []
    total = 0
    # the first passage of every text, then the second of every: many texts reveal more than much of one
    for at in range(0, max((len(text.ids) for text in texts), default=0), window_tokens):
        if total >= most_tokens:
            break
        for number, text in enumerate(texts):
            ids, start = text.ids[at : at + window_tokens], max(text.start - at, 0)
            if start < len(ids) - 1 and total < most_tokens:
                passages.append(Passage(ids, start, number))
                total += len(ids)
    if not passages:
        raise ConfigError(
            f"{path}: it holds nothing to measure: a text, and a conversation's last response, needs two tokens or more"
        )
    return _numbered(passages)


def _numbered(passages: list[Passage]) -> list[Passage]:
    if any(passage.text for passage in passages):
        return passages
    return [msgspec.structs.replace(passage, text=number) for number, passage in enumerate(passages)]


def passage_of(messages: Sequence[Message], tokenizer: Tokenizer, text: int = 0) -> Passage:
    """A conversation that ends with a response, of which the response counts. Raises ValueError for any other."""
    said = [dict(message) for message in messages]
    ids = tokenizer.chat_ids(said)
    if len(said) < 2 or said[-1].get("role") != "assistant":
        raise ValueError("messages must end with an assistant's answer")
    asked = tokenizer.chat_ids(said[:-1])
    # both renderings open another turn of the assistant at their end; the whole text's is not part of the response
    opened = 0
    while opened < len(asked) and ids[-1 - opened] == asked[-1 - opened]:
        opened += 1
    return Passage(ids[: len(ids) - opened] if opened else ids, len(asked) - 1, text)


def _texts(path: Path, tokenizer: Tokenizer) -> Iterable[Passage]:
    if path.is_dir():
        return itertools.chain.from_iterable(_texts(file, tokenizer) for file in sorted(path.rglob("*.py")))
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
    return passage_of(line.messages or [], tokenizer)
