"""Drafts that branch: several candidates for the next token, and for the tokens after each."""

from __future__ import annotations

from typing import NamedTuple


class DraftTree(NamedTuple):
    """Nodes in an order in which a parent precedes its children. It must be a function of the text alone: see
    `rules.accepted_path`."""

    ids: list[int]
    """The token of each node; siblings differ."""
    parents: list[int]
    """The index of each node's parent; -1 for a node that follows the text itself."""

    def first(self, count: int) -> DraftTree:
        """The first `count` nodes, which form a tree too."""
        return DraftTree(self.ids[:count], self.parents[:count])

    def depths(self) -> list[int]:
        """Depth of the text's end (0), then of each node, in tokens after the text."""
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent + 1] + 1)
        return depths

    def ancestors(self) -> list[list[int]]:
        """The path from the root to each node, inclusive."""
        lines: list[list[int]] = []
        for node, parent in enumerate(self.parents):
            lines.append([*(lines[parent] if parent >= 0 else []), node])
        return lines
