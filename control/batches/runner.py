"""Works on batches, several at once, step by step as `machine.py` decides.

A kill at any time is safe: each step is a transaction or can be repeated, and results are stored with their bill. A
line whose answer was lost runs again; the lost run is not billed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import asyncpg

from contracts.backoff import Backoff
from control.batches import asking, claims, files
from control.batches.claims import Claim, Held, LeaseLost, Result, ResultFile
from control.batches.line import Line, LineError, checked, line_of, numbered
from control.batches.line_runner import LineRunner, Stopped
from control.batches.line_token import LineToken
from control.batches.machine import BatchStatus, Step, next_step
from control.batches.metrics import BatchMetrics
from control.batches.models import model_check
from control.batches.pace import MOST
from control.batches.store import FileStore
from gateway.metering.ledger.ledger import Ledger
from storage.engine import DEFECTS, FAILURES, borrow, close, lazy_pool

BATCHES_AT_ONCE = 4
"""Batches that a worker runs at once."""
TURN_S = 60.0
"""Time after which a batch gives way to one that waits."""
KEEP_S = 2.0
"""Between two renewals of a lease, which notice a cancelled batch."""
IDLE_S = 30.0
PAUSE_S = 5.0
"""After a batch that could not go on, because its files are out of reach."""
CONNECT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 60.0
GROUP = 500
"""Results that are given up, or written to a file, at once."""
GIVEN_UP = {
    BatchStatus.FINALIZING: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
    BatchStatus.CANCELLING: ("batch_cancelled", "This request was not executed before the batch was cancelled."),
}

ResultT = TypeVar("ResultT")
_log = logging.getLogger(__name__)


class BatchRunner:
    """One per worker process.

    url: of the gateway. pepper: the deployment's, which tokens are made with. store: of files; called once. trusted:
    for the gateway's certificate; None: the default.
    """

    def __init__(
        self,
        database_url: str,
        url: str,
        pepper: Callable[[], bytes],
        store: Callable[[], FileStore],
        metrics: BatchMetrics | None,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        self._database_url = database_url
        self._url = url
        self._new_pepper, self._new_store = pepper, store
        self._metrics = metrics
        self._trusted = trusted
        self._pepper: bytes
        self._store: FileStore
        self._pool: asyncpg.Pool[Any]
        self._ledger: Ledger
        self._session: aiohttp.ClientSession

    async def run(self, due: asyncio.Event, stop: asyncio.Event) -> None:
        """Work whenever a batch may be due, until `stop`; batches in hand are then given back."""
        self._pepper, self._store = self._new_pepper(), self._new_store()
        self._pool = await lazy_pool(
            self._database_url,
            size=2 * BATCHES_AT_ONCE,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            name="slipstream-batches",
        )
        self._ledger = Ledger(self._pool)
        connector = aiohttp.TCPConnector(limit=MOST, ssl=self._trusted or True)
        timeout = aiohttp.ClientTimeout(total=asking.LINE_TIMEOUT_S)
        try:
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session:
                await asyncio.gather(*(self._serve(due, stop) for _ in range(BATCHES_AT_ONCE)))
        finally:
            await close(self._pool, CONNECT_TIMEOUT_S)

    async def _serve(self, due: asyncio.Event, stop: asyncio.Event) -> None:
        while not stop.is_set():
            due.clear()
            try:
                while not stop.is_set() and (held := await self._once(claims.claim)) is not None:
                    await self._work(held, stop)
                if self._metrics is not None:
                    self._metrics.standing(await self._once(claims.by_status))
            except FAILURES as error:
                _log.warning("batches wait for the database: %r", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(due.wait(), IDLE_S)

    async def _work(self, held: Claim, stop: asyncio.Event) -> None:
        """Work on it until it ends, is lost, gives way, or the process stops."""
        ended = asyncio.Event()
        work = asyncio.create_task(self._steps(held, ended))
        keeping = asyncio.create_task(self._keep(held, ended))
        stopping = asyncio.create_task(stop.wait())
        tasks: tuple[asyncio.Task[Any], ...] = (work, keeping, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        failure = next(
            (each.exception() for each in (work, keeping) if not each.cancelled() and each.exception()), None
        )
        match failure:
            case None:
                await self._give_back(held)
            case LeaseLost():
                _log.warning("batches: %s was taken over by another worker, or has ended", held.batch_id)
            case _:
                _log.error("batches: %s cannot go on and is tried again", held.batch_id, exc_info=failure)
                with contextlib.suppress(TimeoutError):  # which ends the wait: a task would stay until the worker's end
                    await asyncio.wait_for(stop.wait(), PAUSE_S)
                await self._give_back(held)

    async def _give_back(self, held: Claim) -> None:
        with contextlib.suppress(*FAILURES):  # its lease ends anyway
            await self._once(claims.give_back, held)

    async def _keep(self, held: Claim, ended: asyncio.Event) -> None:
        """Renew the lease, forever. ended: set when the batch is being cancelled. Raises LeaseLost."""
        while True:
            # a database that is away does not end the work: another worker may take the expired lease, and it is lost
            with contextlib.suppress(*FAILURES):
                if await self._once(claims.keep, held) is BatchStatus.CANCELLING:
                    ended.set()
            await asyncio.sleep(KEEP_S)

    async def _steps(self, held: Claim, ended: asyncio.Event) -> None:
        while True:
            found = await self._do(claims.read, held)
            match next_step(found.standing):
                case None:
                    return
                case Step.VALIDATE:
                    await self._validate(held, found)
                case Step.RUN:
                    if await self._run(held, found, ended) is Stopped.TURN_OVER:
                        return
                case Step.FINALIZE:
                    await self._do(claims.finalize, held)
                case Step.GIVE_UP_REST:
                    await self._give_up_rest(held, found)
                case Step.WRITE_FILES:
                    await self._write_files(held, found)
                    await self._do(claims.end, held, found.standing)
                    _log.info("batches: %s has ended", held.batch_id)
                    return

    async def _validate(self, held: Claim, found: Held) -> None:
        model_error = await self._do(model_check, found.owner)
        try:
            async with self._store.local(found.input_file_id) as path:
                read = await asyncio.to_thread(checked, path, found.endpoint, model_error)
        except FileNotFoundError:
            gone = LineError("input_file_not_found", f"The file {found.input_file_id} does not exist any more.")
            await self._do(claims.fail, held, [gone])
            return
        if read.errors:
            await self._do(claims.fail, held, read.errors)
        else:
            await self._do(claims.begin, held, read.total, read.model)

    async def _run(self, held: Claim, found: Held, ended: asyncio.Event) -> Stopped:
        began_s, told = time.monotonic(), False
        token = LineToken(lambda: self._do(claims.key_hash, found.owner), self._pepper)

        async def ask(number: int, line: Line) -> Result:
            return await asking.ask(self._session, self._url, await token.current(), number, line)

        async def store(results: list[Result]) -> None:
            await self._do(claims.store, self._ledger, held, (BatchStatus.IN_PROGRESS,), results)
            if self._metrics is not None:
                completed = sum(each.ok for each in results)
                self._metrics.stored(completed=completed, failed=len(results) - completed)

        def refresh(why: str) -> None:
            nonlocal told
            token.refused()
            if not told:
                told = True
                _log.warning(
                    "batches: %s does not take the worker's token for %s (%s), which is tried again: its key was "
                    "rotated, the two have different peppers (the file `pepper` of the data folder), or their clocks "
                    "differ",
                    *(self._url, held.batch_id, why),
                )

        async def turn_over() -> bool:
            nonlocal began_s
            if time.monotonic() - began_s < TURN_S:
                return False
            began_s = time.monotonic()
            return await self._do(claims.others_wait)

        async with self._store.local(found.input_file_id) as path:
            done = await self._do(claims.done, held)
            runner = LineRunner(_missing(path, done), ask, store, refresh, turn_over)
            over = asyncio.get_running_loop().call_later(max(0.0, found.left_s), ended.set)
            try:
                return await runner.run(ended)
            except LeaseLost:
                return Stopped.ENDED  # it is being cancelled; or it is lost indeed, which the next step notices
            finally:
                over.cancel()

    async def _give_up_rest(self, held: Claim, found: Held) -> None:
        code, message = GIVEN_UP[found.standing.status]
        done = await self._do(claims.done, held)
        async with self._store.local(found.input_file_id) as path:
            group: list[Result] = []
            for number, line in _missing(path, done):
                content = asking.output(line.custom_id, None, {"code": code, "message": message})
                group.append(Result(number, False, content))
                if len(group) == GROUP:
                    await self._do(claims.store, self._ledger, held, tuple(GIVEN_UP), group)
                    group = []
            if group:
                await self._do(claims.store, self._ledger, held, tuple(GIVEN_UP), group)

    async def _write_files(self, held: Claim, found: Held) -> None:
        """Write both files under the ids that the batch has for them: a repetition replaces them."""
        ids = {ResultFile.OUTPUT: found.output_file_id, ResultFile.ERROR: found.error_file_id}
        for file, file_id in ids.items():
            async with self._store.draft() as draft:
                size_bytes = await self._write(held, file, draft)
                if not size_bytes:
                    continue
                name = f"{held.batch_id}_{file}.jsonl"
                owned = found.owner, "batch_output", name, size_bytes, found.output_seconds
                await self._do(files.begin, file_id, *owned)
                await self._store.put(file_id, draft)
                await self._do(files.finish, file_id)

    async def _write(self, held: Claim, file: ResultFile, draft: Path) -> int:
        size_bytes, after = 0, 0
        with await asyncio.to_thread(draft.open, "wb") as written:
            while rows := await self._do(claims.contents, held.batch_id, file, after, GROUP):
                text = b"".join(content + b"\n" for _, content in rows)
                size_bytes, after = size_bytes + len(text), rows[-1][0]
                await asyncio.to_thread(written.write, text)
        return size_bytes

    # the database

    async def _once(self, work: Callable[..., Awaitable[ResultT]], *values: Any) -> ResultT:
        """Raises what asyncpg raises, and TimeoutError."""
        async with asyncio.timeout(STATEMENT_TIMEOUT_S), borrow(self._pool) as connection:
            return await work(connection, *values)

    async def _do(self, work: Callable[..., Awaitable[ResultT]], *values: Any) -> ResultT:
        """Again and again while the database is away; everything done here may be done twice."""
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                return await self._once(work, *values)
            except DEFECTS:
                raise
            except FAILURES as error:
                _log.warning("batches wait for the database: %r", error)
            await asyncio.sleep(backoff.next_s())


def _missing(path: Path, done: set[int]) -> Iterator[tuple[int, Line]]:
    """Lines without a result."""
    return ((number, line_of(raw)) for number, raw in numbered(path) if number not in done)
