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
    """The first position whose next token counts; earlier positions are only context."""
    text: int = 0
    """Number of the source text, because passages of one text are not independent."""


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str | None = None
    messages: list[dict[str, Any]] | None = None


def read_passages(path: Path, tokenizer: Tokenizer, window_tokens: int, most_tokens: int) -> list[Passage]:
    """Passages of at most `window_tokens` each and about `most_tokens` in all.

    Each line of a `.jsonl` file is a text, as `{"text": …}` or `{"messages": […]}`. Any other file is one text, and so
    is each Python file of a folder, in the order of paths. A conversation is rendered by the model's template; only its
    last response counts, because a chat model was not trained to write users' messages. The passages of a single text
    are numbered as separate texts, because nothing else shows the variance among texts. Raises ConfigError that names
    the file and the line.
    """
    texts = list(_texts(path, tokenizer))
    passages: list[Passage] = []
    total = 0
    # the first passage of every text, then every second one: many texts show more than much of one text
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
    """A conversation of which the final response counts. Raises ValueError if it does not end with a response."""
    conversation = [dict(message) for message in messages]
    ids = list(tokenizer.chat_ids(conversation))
    if len(conversation) < 2 or conversation[-1].get("role") != "assistant":
        raise ValueError("messages must end with an assistant's answer")
    request_ids = tokenizer.chat_ids(conversation[:-1])
    # both renderings end by opening another assistant turn, which is not part of the response
    opened = 0
    while opened < len(request_ids) and ids[-1 - opened] == request_ids[-1 - opened]:
        opened += 1
    return Passage(ids[: len(ids) - opened] if opened else ids, len(request_ids) - 1, text)


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
