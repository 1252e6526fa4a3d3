"""Logs what an engine no longer tells, once, and that it tells it again.

Of load reports that fail, the poller says why (`health`); here is what only the core can see: reports that come and say
nothing new, and KV events that do not come.
"""

from __future__ import annotations

import logging

from router.core.replica import Replica

logger = logging.getLogger(__name__)


class LostReports:
    """Of all replicas."""

    def __init__(self) -> None:
        self._said: dict[str, frozenset[str]] = {}

    def look(self, replica: Replica, *, failed: bool) -> None:
        """After a poll. failed: its load report did, which has been logged."""
        said, lost = self._said.get(replica.id, frozenset()), frozenset(replica.lost)
        if failed and not said:
            lost -= {replica.load_lost}
        for what in lost - said:
            logger.warning("replica %s: %s", replica.id, what)
        for what in said - lost:
            logger.info("replica %s: no longer true: %s", replica.id, what)
        if lost:
            self._said[replica.id] = lost
        else:
            self._said.pop(replica.id, None)
