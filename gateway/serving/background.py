"""Runs work that no client waits for: prompts computed in advance, and copies to a release's candidate.

Each attempt runs alone on an idle replica, and is cancelled when any request is placed there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from contracts.errors import SlipstreamError
from contracts.lease import Engine
from contracts.phases import Phase
from gateway.serving.attempt import Attempt
from gateway.serving.collaborators import Router, UsageJournal
from gateway.serving.generator import Generator
from gateway.serving.observers import RequestObserver

TagT = TypeVar("TagT")
"""A task's tag, a file or a pool, by which other requests end the task."""


class BackgroundAttempts:
    """Runs each attempt on the idle replica that it names, or not at all. The journal records it; no bill has it."""

    def __init__(self, journal: UsageJournal, router: Router, generator: Generator) -> None:
        self._journal = journal
        self._router = router
        self._generator = generator

    async def run(self, attempt: Attempt) -> None:
        """Run one attempt. A refusal by the router leaves no record. Raises SlipstreamError."""
        lease = await self._router.acquire(attempt.lease_request(deadline_s=0.0))
        attempt.request.clock.end(Phase.ROUTE)
        attempt.granted_s, attempt.prefill = attempt.request.clock.total_s, lease.prefill
        try:
            self._journal.opened(attempt.opened)
            self._journal.placed(attempt.placed(lease.engine))
            await self._generator.generate(attempt, lease)
            attempt.status = 200
        except SlipstreamError as error:
            attempt.failed(error)
            attempt.error_code, attempt.status = error.code, attempt.request.wire_format.error_status(error)
            raise
        finally:
            self._router.release(attempt.lease_end(lease.lease_id))
            await self._journal.closed(attempt.closed())


class IdleReplicaWork(RequestObserver, Generic[TagT]):
    """The running tasks of one kind."""

    def __init__(self) -> None:
        self._by_replica: dict[str, tuple[TagT, asyncio.Task[None]]] = {}
        """Tasks with their tags, by replica. A task that gives way is removed."""
        self._attempts: dict[str, Attempt] = {}
        """Attempts of these tasks."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Cancel running tasks, and wait until their leases and journal records are closed."""
        for replica_id in list(self._by_replica):
            self._give_way(replica_id)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def placed(self, attempt: Attempt, engine: Engine) -> None:
        """Make a task on the same replica give way, and tasks on a pair with the same prefill engine."""
        if engine.replica_id in self._by_replica:
            self._give_way(engine.replica_id)
        if attempt.prefill is not None:
            for replica_id in [one for one, own in self._attempts.items() if own.prefill == attempt.prefill]:
                self._give_way(replica_id)

    def _begin(self, replica_id: str, tag: TagT, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._by_replica[replica_id] = tag, task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _over(self, replica_id: str) -> None:
        """Called by a task at its end, to free the replica unless a later task has it."""
        running = self._by_replica.get(replica_id)
        if running is not None and running[1] is asyncio.current_task():
            del self._by_replica[replica_id]
            self._attempts.pop(replica_id, None)

    def _give_way_of(self, tag: TagT) -> None:
        for replica_id in [one for one, (own, _) in self._by_replica.items() if own == tag]:
            self._give_way(replica_id)

    def _give_way(self, replica_id: str) -> None:
        """Cancel the task only once: a second time would interrupt its last journal record."""
        _, task = self._by_replica.pop(replica_id)
        self._attempts.pop(replica_id, None)
        task.cancel()
