"""Logs once when a kind of an engine's report is lost, and once when it comes back.

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
        self._said: dict[str, frozenset[str]] = {}

    def look(self, replica: Replica, *, failed: bool) -> None:
        """Log changes after a poll. failed: its load report failed, which the poller has logged."""
        said, lost = self._said.get(replica.id, frozenset()), frozenset(replica.lost)
        if failed and not said:
            lost -= {replica.load_lost}
        for sentence in lost - said:
            logger.warning("replica %s: %s", replica.id, sentence)
        for sentence in said - lost:
            logger.info("replica %s: resolved: %s", replica.id, sentence)
        if lost:
            self._said[replica.id] = lost
        else:
            self._said.pop(replica.id, None)
