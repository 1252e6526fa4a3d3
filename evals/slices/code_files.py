"""Real Python files in which code slices replay edits; the shipped model learned from none of them.

They are packed (`evals/pack_code_files.py`), not read from the installation, so that the item of a seed is the same on
every machine, whatever its Python, and after every upgrade.
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
"""Earlier lines have too little text above them to be completed."""
SHORTEST_LINE = 4
"""Minimum characters of a line that is completed, without its indentation."""
LONGEST_BLOCK = 4
"""Maximum lines of a block that is completed, including the cursor's own."""
_TEXTS = (tokenize.STRING, tokenize.COMMENT)


class CodeFile(msgspec.Struct, frozen=True):
    """One file. name: its origin and path, such as `stdlib-3.11/queue.py`."""

    name: str
    text: str


class Place(msgspec.Struct, frozen=True):
    """A place for an edit, by offsets in a file's text. start: of the line's content; line_end: end of the line; end:
    end of the last line of its block if the block ends within `LONGEST_BLOCK` lines, else None."""

    start: int
    line_end: int
    end: int | None


def pack(files: list[CodeFile]) -> bytes:
    """Pack files; equal files give equal bytes."""
    return gzip.compress(msgspec.json.encode(sorted(files, key=lambda file: file.name)), mtime=0)


@functools.cache
def pack_digest() -> str:
    """Digest of all files, for the version of a slice."""
    return hashlib.sha256(gzip.decompress(PACK.read_bytes())).hexdigest()


@functools.cache
def code_files() -> tuple[CodeFile, ...]:
    """All packed files, by name."""
    return msgspec.json.decode(gzip.decompress(PACK.read_bytes()), type=tuple[CodeFile, ...])


@functools.lru_cache(maxsize=256)
def places(text: str) -> tuple[Place, ...]:
    """The lines of code in which an edit may be: not blank, not a comment and not part of a string of several lines.

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
    """Start and end of each line, without its line end and the space before it."""
    start = 0
    for line in text.split("\n"):
        yield start, start + len(line.rstrip())
        start += len(line) + 1


def _lines_of_texts(text: str) -> Iterator[int]:
    """Numbers of lines with only a comment or a string, and of lines in strings of several lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        first, last = token.start[0], token.end[0]
        if token.type in _TEXTS and (last > first or token.line.strip() == token.string):
            yield from range(first - 1, last)


def _last_of_block(text: str, lines: list[tuple[int, int]], number: int) -> int | None:
    """The last line of the block that a line is in, from two to `LONGEST_BLOCK` lines on; None if the block is longer
    or ends with this line."""
    own = _indentation(text, lines[number])
    last = number
    while last + 1 < len(lines) and (deep := _indentation(text, lines[last + 1])) is not None and deep >= (own or 0):
        last += 1
        if last - number >= LONGEST_BLOCK:
            return None
    return last if own and last > number else None


def _indentation(text: str, line: tuple[int, int]) -> int | None:
    """Indentation in characters; None for a blank line."""
    start, end = line
    content = text[start:end]
    return len(content) - len(content.lstrip()) if content.strip() else None
