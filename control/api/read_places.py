"""Limits the expensive reads of tenants, so that they leave connections for other requests. One per gateway process."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from uuid import UUID

from contracts.errors import RateLimited, ServiceError
from control.api.principal import Principal

RETRY_AFTER_S = 2


class ReadPlaces:
    """Slots for expensive reads. connections: size of the pool; expensive reads of tenants leave one of them free,
    unless it is the only one. each: slots of one organization."""

    def __init__(self, connections: int, each: int) -> None:
        self._limit = max(1, connections - 1)
        self._each = min(each, self._limit)
        self._taken: Counter[UUID] = Counter()

    @contextlib.contextmanager
    def place(self, principal: Principal) -> Iterator[None]:
        """Hold a slot for the block. Raises RateLimited when the reader's organization uses all of its slots,
        ServiceError when tenants together use all of theirs. An operator needs none."""
        if principal.operator:
            yield
            return
        organization_id = principal.organization_id
        if self._taken[organization_id] >= self._each:
            raise RateLimited(
                f"Your organization has {self._each} reports of this kind under way at this gateway, which is "
                "the limit; try again when one of them is done.",
                retry_after_s=RETRY_AFTER_S,
            )
        if self._taken.total() >= self._limit:
            raise ServiceError("The admin API is busy with other reports; try again.", retry_after_s=RETRY_AFTER_S)
        self._taken[organization_id] += 1
        try:
            yield
        finally:
            self._taken[organization_id] -= 1
            self._taken += Counter()  # drops organizations without any
