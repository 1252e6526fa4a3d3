"""Finds control tokens in clients' texts, for engines that cannot distinguish them from their own."""

from __future__ import annotations

from typing import Any

from contracts.errors import SpecialToken
from engines.tokenizer.tokenizer import Tokenizer


def require_plain(tokenizer: Tokenizer, value: Any, param: str) -> None:
    """Raise SpecialToken if a text of a JSON value contains a control token. param: the field that the error names."""
    for text in _texts(value):
        found = tokenizer.special_in(text)
        if found is not None:
            raise SpecialToken(
                f"The text contains {found!r}, one of this model's control tokens. Remove it or break it up.",
                param=param,
            )


def _texts(value: Any) -> list[str]:
    """Every text in a JSON value that a template may put into the prompt, and the joined text parts of each list."""
    found: list[str] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            pending += [part for name, held in item.items() if name != "image_url" for part in (name, held)]
        elif isinstance(item, list | tuple):
            parts = [part.get("text") for part in item if isinstance(part, dict)]
            found.append("".join(part for part in parts if isinstance(part, str)))
            pending += item
    return found
