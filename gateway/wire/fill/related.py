"""Renders text of other files into a prompt: as files if the model learnt repositories, otherwise as comments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engines.tokenizer.fill import FillTemplate
from gateway.wire.fill.window import LOOKED_AT, Counts
from gateway.wire.gap import Snippet

HASH = "python ruby perl r shell shellscript bash sh zsh yaml yml toml make makefile dockerfile elixir py rb pl ex"
DASHES = "lua sql haskell hs ada elm"
MARKS = {**dict.fromkeys(HASH.split(), "#"), **dict.fromkeys(DASHES.split(), "--")}
"""The beginning of a comment, by language or file extension; `//` for all others."""


def as_text(snippets: Sequence[Snippet], path: str, language: str, file_line: str) -> str:
    """The text before a prefix for these snippets. file_line: see `FillTemplate`; empty for comments, as Tabby writes
    them."""
    if not snippets:
        return ""
    if file_line:
        files = [f"{file_line.format(path=snippet.path)}{snippet.text}\n\n" for snippet in snippets]
        return "".join(files) + file_line.format(path=path)
    extension = path.rpartition(".")[2]
    mark = MARKS.get(language.lower()) or MARKS.get(extension.lower()) or "//"
    return "".join([f"{mark} {line}".rstrip() + "\n" for snippet in snippets for line in _lines(snippet)])


def within(snippets: Iterable[Snippet], room_tokens: int, counts: Counts) -> tuple[Snippet, ...]:
    """The first whole snippets that fit together. Snippets after one that does not fit are left out, so that the
    beginning of the prompt stays the same. counts: see `window`."""
    kept: list[Snippet] = []
    for snippet in snippets:
        # comment marks and the path also cost about two tokens a line
        room_tokens -= 2 * (snippet.text.count("\n") + 2)
        if len(snippet.path) + len(snippet.text) > room_tokens * LOOKED_AT:
            break
        room_tokens -= sum(counts((snippet.path, snippet.text)))
        if room_tokens < 0:
            break
        kept.append(snippet)
    return tuple(kept)


def has_files(template: FillTemplate | None) -> bool:
    """Whether the model has a token that begins a file."""
    return template is not None and bool(template.file_ids)


def _lines(snippet: Snippet) -> list[str]:
    head = [f"Path: {snippet.path}"] if snippet.path else []
    return head + (snippet.text.rstrip("\n").split("\n") if snippet.text.strip() else [])
