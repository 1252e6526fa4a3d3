"""Limits the known streams that run at once. Pure."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from contracts.errors import Overloaded, RateLimited
from gateway.stream_audit.config import StreamAuditConfig


class Places:
    """The slots of one gateway."""

    def __init__(self, config: StreamAuditConfig) -> None:
        self._config = config
        self._of_key: Counter[str] = Counter()
        self._of_organization: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Slots in use, by all keys."""
        return self._of_key.total()

    @contextlib.contextmanager
    def place(self, organization_id: str, key_id: str, duration_s: float) -> Iterator[None]:
        """Hold one slot for the block. duration_s: the stream's. Raises RateLimited if the key or its organization uses
        all its slots, Overloaded if no slot is free."""
        config = self._config
        wait_s = max(1.0, duration_s)
        _require_free("This key", self._of_key[key_id], config.max_streams_per_key, wait_s)
        limit = config.max_streams_per_organization
        _require_free("Your organization", self._of_organization[organization_id], limit, wait_s)
        if self.taken >= config.max_streams:
            raise Overloaded("This instance has reached its limit of open audit streams. Try again.", retry_after_s=5.0)
        with _counted(self._of_key, key_id), _counted(self._of_organization, organization_id):
            yield


def _require_free(owner: str, taken: int, limit: int, wait_s: float) -> None:
    if taken >= limit:
        raise RateLimited(
            f"{owner} has {limit} audit streams open at this instance, which is the limit. Try again when "
            "one has ended.",
            retry_after_s=wait_s,
        )


@contextlib.contextmanager
def _counted(counter: Counter[str], name: str) -> Iterator[None]:
    counter[name] += 1
    try:
        yield
    finally:
        counter[name] -= 1
        if not counter[name]:
            del counter[name]
