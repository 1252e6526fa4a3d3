"""Runs tokenization in threads, organizations in turn, so that a tenant with much text does not delay the others.

Every decision is taken on the event loop; a thread only runs its job.
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
    """Work and the future of its result; compared by identity."""

    tenant: str
    work: Callable[[], Any]
    answer: asyncio.Future[Any]


class FairExecutor:
    """Threads shared by all models of a process. Used from one event loop."""

    def __init__(self, config: TokenizingConfig | None = None) -> None:
        """None: the defaults."""
        config = config or TokenizingConfig()
        self._queue: FairQueue[_Job] = FairQueue(config.organization_jobs, config.organization_bytes)
        self._threads = ThreadPoolExecutor(config.threads, thread_name_prefix="tokenizer")
        self._idle = config.threads
        self._closed = False

    async def run(self, tenant: str, size_bytes: int, work: Callable[[], ResultT]) -> ResultT:
        """The result of `work`, run in a thread when the tenant's turn comes. Cancelled before that, it never runs.

        Raises the errors of `ours`, RateLimited when the tenant has too much waiting already, Draining once closed.
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
        """Refuse waiting jobs. Jobs under way are finished, and the threads are not awaited."""
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
        """In the thread: pass the result to the loop, unless it was closed meanwhile."""
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
    """The result of `work`. Raises SlipstreamError only, so that every future is resolved: asyncio cannot pass on a
    StopIteration, and a panic of the Rust library is no Exception."""
    try:
        return work()
    except (SlipstreamError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        logger.exception("tokenizing failed")
        raise InternalError("The prompt could not be tokenized; this is a defect in Slipstream.") from None
