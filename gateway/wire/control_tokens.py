"""Finds control tokens in clients' texts, for engines that cannot tell them from their own."""

from __future__ import annotations

from typing import Any

from contracts.errors import SpecialToken
from engines.tokenizer.tokenizer import Tokenizer


def require_plain(tokenizer: Tokenizer, value: Any, param: str) -> None:
    """Raises SpecialToken when a text of a JSON value holds one; param names it."""
    for text in _texts(value):
        found = tokenizer.special_in(text)
        if found is not None:
            raise SpecialToken(
                f"The text contains {found!r}, one of this model's control tokens. Remove it or break it up.",
                param=param,
            )


def _texts(value: Any) -> list[str]:
    """Every text in a JSON value that a chat template may put into the prompt; text parts also as one, joined."""
    found: list[str] = []
    left = [value]
    while left:
        inner = left.pop()
        if isinstance(inner, str):
            found.append(inner)
        elif isinstance(inner, dict):
            left += [part for name, held in inner.items() if name != "image_url" for part in (name, held)]
        elif isinstance(inner, list | tuple):
            parts = [part.get("text") for part in inner if isinstance(part, dict)]
            found.append("".join(part for part in parts if isinstance(part, str)))
            left += inner
    return found
