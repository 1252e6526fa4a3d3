"""Logs once when a kind of an engine's reports is lost, and once when it returns.

The poller (`health`) logs why load reports fail. This module logs losses that only the core detects: unchanging reports
and missing KV events.
"""

from __future__ import annotations

import logging

from router.core.replica import Replica

logger = logging.getLogger(__name__)


class LostReports:
    """The logged losses of all replicas."""

    def __init__(self) -> None:
        self._logged: dict[str, frozenset[str]] = {}

    def look(self, replica: Replica, *, failed: bool) -> None:
        """Log changes after a poll. failed: whether the load report failed, which the poller has logged."""
        logged, lost = self._logged.get(replica.id, frozenset()), frozenset(replica.lost)
        if failed and not logged:
            lost -= {replica.load_lost}
        for sentence in lost - logged:
            logger.warning("replica %s: %s", replica.id, sentence)
        for sentence in logged - lost:
            logger.info("replica %s: resolved: %s", replica.id, sentence)
        if lost:
            self._logged[replica.id] = lost
        else:
            self._logged.pop(replica.id, None)
