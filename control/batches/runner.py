"""Works on batches, several at once, step by step as `machine.py` decides.

The process may be killed at any time: each step is a transaction or can be repeated, and results are stored with their
bill. A line whose answer was lost runs again; the lost run is not billed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from control.batches import asking, claims, files
from control.batches.claims import ClaimedBatch, Result, ResultFile
from control.batches.line import Line, LineError, checked, line_of, numbered
from control.batches.line_runner import LineRunner, Stopped
from control.batches.line_token import LineToken
from control.batches.machine import BatchStatus, Step, next_step
from control.batches.metrics import BatchMetrics
from control.batches.models import model_check
from control.batches.pace import MAX
from control.batches.store import FileStore
from control.deferred.gateway_client import TOKEN_REFUSED
from control.deferred.leases import Claim, LeaseLost
from control.deferred.runner import LeasedRowWorker

BATCHES_AT_ONCE = 4
"""Batches that a worker runs at once."""
TURN_S = 60.0
"""Time after which a batch gives way to one that waits."""
GROUP = 500
"""Number of results that are given up, or written to a file, at once."""
GIVEN_UP = {
    BatchStatus.FINALIZING: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
    BatchStatus.CANCELLING: ("batch_cancelled", "This request was not executed before the batch was cancelled."),
}

_log = logging.getLogger(__name__)


class BatchRunner(LeasedRowWorker):
    """One per worker process. store: creates the store of files; called once. See also `LeasedRowWorker`."""

    name, leases = "batches", claims.LEASES
    at_once, most_each, connections, requests = BATCHES_AT_ONCE, MAX, 2 * BATCHES_AT_ONCE, MAX

    def __init__(
        self,
        database_url: str,
        url: str,
        pepper: Callable[[], bytes],
        store: Callable[[], FileStore],
        metrics: BatchMetrics | None,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(database_url, url, pepper, trusted)
        self._new_store, self._metrics = store, metrics
        self._store: FileStore

    async def run(self, due: asyncio.Event, stop: asyncio.Event) -> None:
        self._store = self._new_store()
        await super().run(due, stop)

    async def _on_idle(self) -> None:
        if self._metrics is not None:
            self._metrics.set_counts(await self._once(claims.by_status))

    def _on_renewed(self, status: Any, ended: asyncio.Event) -> None:
        if status == BatchStatus.CANCELLING:
            ended.set()

    async def _steps(self, claim: Claim, ended: asyncio.Event) -> None:
        while True:
            batch = await self._do(claims.read, claim)
            match next_step(batch.standing):
                case None:
                    return
                case Step.VALIDATE:
                    await self._validate(claim, batch)
                case Step.RUN:
                    if await self._run(claim, batch, ended) is Stopped.TURN_OVER:
                        return
                case Step.FINALIZE:
                    await self._do(claims.finalize, claim)
                case Step.GIVE_UP_REST:
                    await self._give_up_rest(claim, batch)
                case Step.WRITE_FILES:
                    await self._write_files(claim, batch)
                    await self._do(claims.end, claim, batch.standing)
                    _log.info("batches: %s has ended", claim.id)
                    return

    async def _validate(self, claim: Claim, batch: ClaimedBatch) -> None:
        if batch.standing.expired:
            await self._do(claims.fail, claim, [LineError("batch_expired", GIVEN_UP[BatchStatus.FINALIZING][1])])
            return
        model_error = await self._do(model_check, batch.owner)
        try:
            async with self._store.local(batch.input_file_id) as path:
                read = await asyncio.to_thread(checked, path, batch.endpoint, model_error)
        except FileNotFoundError:
            await self._do(claims.fail, claim, [_gone(batch)])
            return
        if read.errors:
            await self._do(claims.fail, claim, read.errors)
        else:
            await self._do(claims.begin, claim, read.total, read.model)

    async def _run(self, claim: Claim, batch: ClaimedBatch, ended: asyncio.Event) -> Stopped:
        began_s, warned = time.monotonic(), False
        token = LineToken(lambda: self._do(claims.key_hash, batch.owner), self._pepper)

        async def ask(number: int, line: Line) -> Result:
            return await asking.ask(self._session, self._url, await token.current(), number, line)

        async def store(results: list[Result]) -> None:
            # a line that ended before the worker saw the cancellation is billed, so its response may be stored
            statuses = BatchStatus.IN_PROGRESS, BatchStatus.CANCELLING
            if await self._do(claims.store, self._ledger, claim, statuses, results) is BatchStatus.CANCELLING:
                ended.set()
            if self._metrics is not None:
                completed = sum(each.ok for each in results)
                self._metrics.stored(completed=completed, failed=len(results) - completed)

        def refresh(why: str) -> None:
            nonlocal warned
            token.refused()
            if not warned:
                warned = True
                _log.warning(TOKEN_REFUSED, self.name, self._url, claim.id, why)

        async def turn_over() -> bool:
            nonlocal began_s
            if time.monotonic() - began_s < TURN_S:
                return False
            began_s = time.monotonic()
            return await self._do(claims.has_waiting)

        over = asyncio.get_running_loop().call_later(max(0.0, batch.left_s), ended.set)
        try:
            async with self._store.local(batch.input_file_id) as path:
                done = await self._do(claims.done, claim)
                return await LineRunner(_missing(path, done), ask, store, refresh, turn_over).run(ended)
        except LeaseLost:
            return Stopped.ENDED  # the next step notices
        except (FileNotFoundError, InputDamaged):
            await self._do(claims.lose_rest, claim, [_gone(batch)])
            return Stopped.ENDED
        finally:
            over.cancel()

    async def _give_up_rest(self, claim: Claim, batch: ClaimedBatch) -> None:
        code, message = GIVEN_UP[batch.standing.status]
        done = await self._do(claims.done, claim)
        group: list[Result] = []
        is_lost = False
        try:
            async with self._store.local(batch.input_file_id) as path:
                for number, line in _missing(path, done):
                    content = asking.output(line.custom_id, None, {"code": code, "message": message})
                    group.append(Result(number, False, content))
                    if len(group) == GROUP:
                        await self._do(claims.store, self._ledger, claim, tuple(GIVEN_UP), group)
                        group = []
        except (FileNotFoundError, InputDamaged):
            is_lost = True
        await self._do(claims.store, self._ledger, claim, tuple(GIVEN_UP), group)
        if is_lost:
            await self._do(claims.lose_rest, claim, [_gone(batch)])

    async def _write_files(self, claim: Claim, batch: ClaimedBatch) -> None:
        """Write both files under the batch's ids for them, so that a repetition replaces them."""
        ids = {ResultFile.OUTPUT: batch.output_file_id, ResultFile.ERROR: batch.error_file_id}
        for file, file_id in ids.items():
            async with self._store.draft() as draft:
                size_bytes = await self._write(claim, file, draft)
                if not size_bytes:
                    continue
                name = f"{claim.id}_{file}.jsonl"
                attributes = "batch_output", name, size_bytes, batch.output_seconds
                await self._do(files.begin, batch.owner, file_id, *attributes)
                await self._store.put(file_id, draft)
                await self._do(files.finish, batch.owner, file_id)

    async def _write(self, claim: Claim, file: ResultFile, draft: Path) -> int:
        size_bytes, after = 0, 0
        written = await asyncio.to_thread(draft.open, "wb")
        try:
            while rows := await self._do(claims.contents, claim.id, file, after, GROUP):
                text = b"".join(content + b"\n" for _, content in rows)
                size_bytes, after = size_bytes + len(text), rows[-1][0]
                await asyncio.to_thread(written.write, text)
        finally:
            await asyncio.to_thread(written.close)  # which waits for a write that hangs
        return size_bytes


def _gone(batch: ClaimedBatch) -> LineError:
    return LineError("input_file_not_found", f"The input file {batch.input_file_id} no longer exists or is damaged.")


class InputDamaged(Exception):
    """The input file is missing, or has changed since it was checked."""


def _missing(path: Path, done: set[int]) -> Iterator[tuple[int, Line]]:
    """Lines without a result. Raises InputDamaged."""
    try:
        for number, raw in numbered(path):
            if number not in done:
                yield number, line_of(raw)
    except (FileNotFoundError, ValueError) as error:
        raise InputDamaged from error
