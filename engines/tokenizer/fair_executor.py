"""Runs tokenization in threads, in which organizations take turns, so that none with much text delays others.

All decisions are made on the event loop; a thread only runs its job.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from contracts.errors import Draining, InternalError, SlipstreamError
from engines.tokenizer.config import TokenizingConfig
from engines.tokenizer.fair_queue import FairQueue

logger = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A unit of work and the future of its result; jobs are compared by identity."""

    tenant: str
    work: Callable[[], Any]
    answer: asyncio.Future[Any]


class FairExecutor:
    """Threads shared by all models of a process. Used from one event loop."""

    def __init__(self, config: TokenizingConfig | None = None) -> None:
        """config: None for the defaults."""
        config = config or TokenizingConfig()
        self._queue: FairQueue[_Job] = FairQueue(config.organization_jobs, config.organization_bytes)
        self._threads = ThreadPoolExecutor(config.threads, thread_name_prefix="tokenizer")
        self._idle = config.threads
        self._closed = False

    async def run(self, tenant: str, size_bytes: int, work: Callable[[], ResultT]) -> ResultT:
        """The result of `work`, run in a thread when the tenant's turn comes. If cancelled before, it never runs.

        Raises the errors of `ours`, RateLimited if the tenant's jobs have reached its limit, and Draining after
        `close`.
        """
        if self._closed:
            raise Draining()
        loop = asyncio.get_running_loop()
        job = _Job(tenant, functools.partial(ours, work), loop.create_future())
        self._queue.put(tenant, job, size_bytes)
        self._start(loop)
        try:
            result: ResultT = await job.answer
        finally:
            # no effect unless the waiting task was cancelled
            self._queue.drop(tenant, job)
        return result

    def close(self) -> None:
        """Refuse waiting jobs. Running jobs finish, but `close` does not wait for their threads."""
        self._closed = True
        for job in self._queue.clear():
            if not job.answer.done():
                job.answer.set_exception(Draining())
        self._threads.shutdown(wait=False)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._idle and (job := self._queue.take()) is not None:
            self._idle -= 1
            done = self._threads.submit(job.work)
            done.add_done_callback(functools.partial(self._hand_over, loop, job))

    def _hand_over(self, loop: asyncio.AbstractEventLoop, job: _Job, done: Future[Any]) -> None:
        """Pass the result from the thread to the loop, unless the loop has been closed."""
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._finished, loop, job, done)

    def _finished(self, loop: asyncio.AbstractEventLoop, job: _Job, done: Future[Any]) -> None:
        self._idle += 1
        self._queue.finish(job.tenant)
        error = done.exception()
        if job.answer.done():
            pass
        elif error is not None:
            job.answer.set_exception(error)
        else:
            job.answer.set_result(done.result())
        if not self._closed:
            self._start(loop)


def ours(work: Callable[[], ResultT]) -> ResultT:
    """The result of `work`. Raises only SlipstreamError (and interrupts), so that every future is resolved: asyncio
    cannot pass on a StopIteration, and a panic of the Rust library is not an Exception."""
    try:
        return work()
    except (SlipstreamError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        logger.exception("tokenizing failed")
        raise InternalError("The prompt could not be tokenized; this is a defect in Slipstream.") from None
