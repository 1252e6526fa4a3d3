"""Real files of Python in which code slices replay edits: none is in the list of those that the shipped model learnt
from.

They are packed (`evals/pack_code_files.py`) and not read where they are installed, so that the item of a seed is the
same on every machine, whatever its Python, and after every upgrade.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import msgspec

PACK = Path(__file__).parent / "data" / "code_files.json.gz"
FIRST_LINE = 3
"""Lines before it have too little above them to be completed from."""
SHORTEST_LINE = 4
"""Characters of a line that is completed, without its indentation."""
LONGEST_BLOCK = 4
"""Lines of a block that is completed, the cursor's own among them."""
_TEXTS = (tokenize.STRING, tokenize.COMMENT)


class CodeFile(msgspec.Struct, frozen=True):
    """One file. name: its origin and path, such as `stdlib-3.11/queue.py`."""

    name: str
    text: str


class Place(msgspec.Struct, frozen=True):
    """Where an edit may be: characters of a file's text. start: of the line's content; line_end: of that line; end: of
    the last line of its block, where the block ends within `LONGEST_BLOCK` lines; None elsewhere."""

    start: int
    line_end: int
    end: int | None


def pack(files: list[CodeFile]) -> bytes:
    """The same files give the same bytes."""
    return gzip.compress(msgspec.json.encode(sorted(files, key=lambda file: file.name)), mtime=0)


@functools.cache
def pack_digest() -> str:
    """Of all files, for the version of a slice."""
    return hashlib.sha256(gzip.decompress(PACK.read_bytes())).hexdigest()


@functools.cache
def code_files() -> tuple[CodeFile, ...]:
    """All files that have a place, by name."""
    return msgspec.json.decode(gzip.decompress(PACK.read_bytes()), type=tuple[CodeFile, ...])


@functools.lru_cache(maxsize=256)
def places(text: str) -> tuple[Place, ...]:
    """The lines of code of a text in which an edit may be: not blank, no comment, no part of a text of several lines.

    Raises tokenize.TokenError, IndentationError and SyntaxError for a text that is not Python.
    """
    lines = list(_lines(text))
    left_out = set(_lines_of_texts(text))
    found = []
    for number, (start, end) in enumerate(lines):
        content = start + len(text[start:end]) - len(text[start:end].lstrip())
        if number >= FIRST_LINE and number not in left_out and end - content >= SHORTEST_LINE:
            last = _last_of_block(text, lines, number)
            whole = last is not None and left_out.isdisjoint(range(number, last + 1))
            found.append(Place(content, end, lines[last][1] if whole and last is not None else None))
    return tuple(found)


def _lines(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each, without its line end and the space before it."""
    start = 0
    for line in text.split("\n"):
        yield start, start + len(line.rstrip())
        start += len(line) + 1


def _lines_of_texts(text: str) -> Iterator[int]:
    """Those of comments and strings that stand alone, and of strings of several lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        first, last = token.start[0], token.end[0]
        if token.type in _TEXTS and (last > first or token.line.strip() == token.string):
            yield from range(first - 1, last)


def _last_of_block(text: str, lines: list[tuple[int, int]], number: int) -> int | None:
    """The last line of the block that a line is in, from two to `LONGEST_BLOCK` lines on; None: it is longer, or ends
    with this line."""
    own = _indentation(text, lines[number])
    last = number
    while last + 1 < len(lines) and (deep := _indentation(text, lines[last + 1])) is not None and deep >= (own or 0):
        last += 1
        if last - number >= LONGEST_BLOCK:
            return None
    return last if own and last > number else None


def _indentation(text: str, line: tuple[int, int]) -> int | None:
    """Characters; None: the line is blank."""
    start, end = line
    content = text[start:end]
    return len(content) - len(content.lstrip()) if content.strip() else None
