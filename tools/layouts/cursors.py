"""Draws cursors in a tenant's own files and finds parts of other files like the text above a cursor. Pure."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from evals.slices.code_edits import Edit
from evals.slices.code_files import FIRST_LINE, SHORTEST_LINE
from gateway.wire.gap import Gap, Snippet
from gateway.wire.language import language_of_path

LONGEST_LINE = 200
"""Characters; longer lines are data or generated code."""
COMMENTS = ("#", "//", "--", "/*", "*", "<!--")
SNIPPETS, SNIPPET_LINES = 2, 12
NEAR_LINES = 20
"""Lines above the cursor whose names a snippet should share."""
MAX_CHUNKS = 4_000
"""Chunks of files that are compared with each cursor."""
_NAME = re.compile(r"[A-Za-z_]\w{2,}")


class Chunk(NamedTuple):
    """Lines of a file, and the names in them."""

    snippet: Snippet
    names: frozenset[str]


def draw(files: Mapping[str, str], count: int, seed: int) -> list[Edit]:
    """Half-typed lines, the same for the same files and seed: one from every file, then another from every file, until
    there are `count` or no line is left.

    Lines that are blank, comments or very long are left out, and so are a file's first three. At least one
    character is typed and two are missing. A file is a cluster of the paired test, so files prove more than lines.
    """
    rng = random.Random(seed)
    names = sorted(files)
    rng.shuffle(names)
    lines = {name: list(_lines(files[name])) for name in names}
    for spans in lines.values():
        rng.shuffle(spans)
    drawn: list[Edit] = []
    while len(drawn) < count and any(lines.values()):
        for name in names:
            if lines[name] and len(drawn) < count:
                start, end = lines[name].pop()
                drawn.append(Edit(name, files[name], rng.randint(start + 1, end - 2), end, is_block=False))
    return drawn


def _lines(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of the content of each line that may be completed."""
    start = 0
    for number, line in enumerate(text.split("\n")):
        content = line.strip()
        if (
            number >= FIRST_LINE
            and SHORTEST_LINE <= len(content) <= LONGEST_LINE
            and not content.startswith(COMMENTS)
            and _NAME.search(content)
        ):
            first = start + line.index(content)
            yield first, first + len(content)
        start += len(line) + 1


def chunks_of(files: Mapping[str, str], seed: int) -> list[Chunk]:
    """Chunks of the files, or a sample of at most `MAX_CHUNKS`."""
    chunks = []
    for name, text in sorted(files.items()):
        lines = text.split("\n")
        for first in range(0, len(lines), SNIPPET_LINES):
            part = "\n".join(lines[first : first + SNIPPET_LINES])
            if names := frozenset(_NAME.findall(part)):
                chunks.append(Chunk(Snippet(name, part), names))
    return chunks if len(chunks) <= MAX_CHUNKS else random.Random(seed).sample(chunks, MAX_CHUNKS)


def gap_of(edit: Edit, chunks: Sequence[Chunk]) -> Gap:
    """The gap of an edit, with the chunks of other files that share the most names with the lines above the cursor."""
    above = frozenset(_NAME.findall("\n".join(edit.text[: edit.cursor].split("\n")[-NEAR_LINES:])))
    others = [chunk for chunk in chunks if chunk.snippet.path != edit.file and not above.isdisjoint(chunk.names)]
    others.sort(key=lambda chunk: len(above & chunk.names) / len(above | chunk.names), reverse=True)
    return Gap(
        edit.text[: edit.cursor],
        edit.text[edit.end :],
        tuple(chunk.snippet for chunk in others[:SNIPPETS]),
        edit.file,
        language_of_path(edit.file),
    )
