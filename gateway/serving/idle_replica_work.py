"""Work that no client waits for: one task alone on an idle replica, which gives way to any request placed there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from contracts.lease import Engine
from gateway.serving.attempt import Attempt
from gateway.serving.observers import RequestObserver

TagT = TypeVar("TagT")
"""The reason by which other requests end a task: a file, or a pool."""


class IdleReplicaWork(RequestObserver, Generic[TagT]):
    """The running tasks of one kind."""

    def __init__(self) -> None:
        self._by_replica: dict[str, tuple[TagT, asyncio.Task[None]]] = {}
        """By replica, with the tag; tasks that give way are removed."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Cancel running tasks; their books are closed when this returns."""
        for replica_id in list(self._by_replica):
            self._give_way(replica_id)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def placed(self, attempt: Attempt, engine: Engine) -> None:
        """A task on the same replica gives way."""
        if engine.replica_id in self._by_replica:
            self._give_way(engine.replica_id)

    def _begin(self, replica_id: str, tag: TagT, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._by_replica[replica_id] = tag, task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _over(self, replica_id: str) -> None:
        """Called by a task at its end: the replica is free, unless a later task has it."""
        known = self._by_replica.get(replica_id)
        if known is not None and known[1] is asyncio.current_task():
            del self._by_replica[replica_id]

    def _give_way_of(self, tag: TagT) -> None:
        for replica_id in [one for one, (own, _) in self._by_replica.items() if own == tag]:
            self._give_way(replica_id)

    def _give_way(self, replica_id: str) -> None:
        """Cancelled once only: a second time would interrupt its books."""
        _, task = self._by_replica.pop(replica_id)
        task.cancel()
