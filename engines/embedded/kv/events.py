"""What the prefix cache tells about its pages, for those who publish it."""

from __future__ import annotations

from collections.abc import Sequence

from engines.embedded.kv.namespace import Namespace


class BlockEvents:
    """Hears of every change of the cached pages, in order, in the engine's thread. This one tells nobody."""

    def stored(
        self, pages: Sequence[int], tokens: Sequence[tuple[int, ...]], above: tuple[int | None, Namespace]
    ) -> None:
        """A run of pages, each below the one before it, is cached now. above: the page that stands over the first one
        (None: it begins a prompt) and whose they are."""

    def removed(self, page: int) -> None:
        """A page is cached no longer."""

    def cleared(self) -> None:
        """Nothing is cached any more; every page was reported as removed before."""

    def flush(self) -> None:
        """A step is over."""

    def close(self) -> None:
        """The engine ends."""

    def description(self) -> dict[str, object] | None:
        """Where to listen, for /server_info; None: nothing is published."""
        return None
