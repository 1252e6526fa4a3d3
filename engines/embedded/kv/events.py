"""The interface of the prefix cache to publishers of its changes."""

from __future__ import annotations

from collections.abc import Sequence

from engines.embedded.kv.namespace import Namespace


class BlockEvents:
    """Receives every change of the cached pages, in order, in the engine's thread. This class ignores them."""

    def stored(
        self, pages: Sequence[int], tokens: Sequence[tuple[int, ...]], above: tuple[int | None, Namespace]
    ) -> None:
        """A run of pages, each below the one before it, is cached now. above: the page above the first one (None: it
        begins a prompt), and the namespace."""

    def removed(self, page: int) -> None:
        """A page is no longer cached."""

    def cleared(self) -> None:
        """The cache is empty; every page was reported as removed before."""

    def flush(self) -> None:
        """A step is over."""

    def close(self) -> None:
        """The engine ends."""

    def description(self) -> dict[str, object] | None:
        """Endpoints for /server_info; None: nothing is published."""
        return None
