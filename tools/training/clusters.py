"""Groups files that are near-copies of each other, so that no copy of a held-out file is trained on.

A file is a set of shingles: four code lines in a row, without comments and blank lines (else every licence header would
join its package). The shingles whose hash is divisible by `KEEP_ONE_IN` represent the file (a mod-m sketch; Broder
1997). Two files are joined if they share `SHARED` of the smaller one's sketch; groups are transitive.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import xxhash

LINES = 4
KEEP_ONE_IN = 4
SHARED = 0.2
COMMON = 40
"""A shingle in more files than this joins nothing: it is boilerplate."""


def sketch(text: str) -> frozenset[int]:
    """The hashes that represent a text; all hashes of a short text."""
    lines = [line for raw in text.splitlines() if (line := "".join(raw.split())) and not line.startswith("#")]
    count = max(1, len(lines) - LINES + 1)
    hashes = {xxhash.xxh3_64_intdigest("\n".join(lines[at : at + LINES]).encode()) for at in range(count)}
    kept = frozenset(value for value in hashes if value % KEEP_ONE_IN == 0)
    return kept if len(kept) >= 8 else frozenset(hashes)


def clusters(texts: Mapping[str, str]) -> dict[str, str]:
    """The group of each text, named after its first text in sorted order."""
    sketches = {name: sketch(text) for name, text in texts.items()}
    holders: dict[int, list[str]] = defaultdict(list)
    for name in sorted(sketches):
        for value in sketches[name]:
            holders[value].append(name)
    shared: Counter[tuple[str, str]] = Counter()
    for names in holders.values():
        if len(names) <= COMMON:
            for index, one in enumerate(names):
                for other in names[index + 1 :]:
                    shared[one, other] += 1
    parents = {name: name for name in sketches}

    def root(name: str) -> str:
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    for (one, other), count in shared.items():
        if count >= SHARED * min(len(sketches[one]), len(sketches[other])):
            first, second = sorted((root(one), root(other)))
            parents[second] = first
    return {name: root(name) for name in sketches}
