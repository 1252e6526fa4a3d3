"""The interface through which the prefix cache reports its changes to publishers."""

from __future__ import annotations

from collections.abc import Sequence

from engines.embedded.kv.namespace import Namespace


class BlockEvents:
    """Receives every change of the cached pages, in order, in the engine's thread. This class ignores them."""

    def stored(
        self, pages: Sequence[int], tokens: Sequence[tuple[int, ...]], above: tuple[int | None, Namespace]
    ) -> None:
        """Report newly cached pages, each below the one before it. above: the page above the first one (None if it
        begins a prompt), and the namespace."""

    def removed(self, page: int) -> None:
        """Report that a page is no longer cached."""

    def cleared(self) -> None:
        """Report that the cache is empty. Every page was reported as removed before."""

    def flush(self) -> None:
        """Report the end of a step."""

    def close(self) -> None:
        """Release all resources at the end of the engine."""

    def description(self) -> dict[str, object] | None:
        """Endpoints for /server_info; None if nothing is published."""
        return None
