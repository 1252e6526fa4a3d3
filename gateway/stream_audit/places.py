"""How many known streams run at once. Pure."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from contracts.errors import Overloaded, RateLimited
from gateway.stream_audit.config import StreamAuditConfig


class Places:
    """The places of one gateway."""

    def __init__(self, config: StreamAuditConfig) -> None:
        self._config = config
        self._of_key: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """By all keys."""
        return self._of_key.total()

    @contextlib.contextmanager
    def place(self, key_id: str, duration_s: float) -> Iterator[None]:
        """One, for the block. duration_s: how long the stream is to take. Raises RateLimited when the key has all of
        its own, Overloaded when there is none."""
        config = self._config
        if self._of_key[key_id] >= config.max_streams_per_key:
            raise RateLimited(
                f"This key has {config.max_streams_per_key} audit streams open, which is all it may have at once. Try "
                "again when one has ended.",
                retry_after_s=max(1.0, duration_s),
            )
        if self.taken >= config.max_streams:
            raise Overloaded("This instance has as many audit streams open as it may. Try again.", retry_after_s=5.0)
        self._of_key[key_id] += 1
        try:
            yield
        finally:
            self._of_key[key_id] -= 1
            if not self._of_key[key_id]:
                del self._of_key[key_id]
